#include "shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstring>
#include <string>

namespace agent {
namespace {

// Descriptors that may wait to be taken.
constexpr size_t kMostDescriptors = 4;

}  // namespace

SharedMemory::SharedMemory(const Descriptor& memory, int64_t size) : size_(static_cast<size_t>(size)) {
  const int seals = fcntl(memory.get(), F_GET_SEALS);
  if (seals < 0 || !(seals & F_SEAL_SHRINK)) {
    throw Failure(Code::kInput, "the shared memory may shrink", "make it by memfd_create, and seal it: F_SEAL_SHRINK");
  }
  struct stat status{};
  if (fstat(memory.get(), &status) != 0 || size < 1 || status.st_size < size) {
    throw Failure(Code::kInput, "the shared memory has " + std::to_string(status.st_size) + " bytes",
                  std::to_string(size) + " were announced");
  }
  void* mapped = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (mapped == MAP_FAILED) throw Failure(Code::kInput, "the shared memory cannot be mapped", SystemError());
  begin_ = static_cast<uint8_t*>(mapped);
}

SharedMemory::~SharedMemory() { munmap(begin_, size_); }

uint8_t* SharedMemory::At(int64_t begin, int64_t bytes) const {
  const auto size = static_cast<int64_t>(size_);
  if (begin < 0 || bytes < 0 || begin > size || bytes > size - begin) {
    throw Failure(Code::kInput, std::to_string(bytes) + " bytes at " + std::to_string(begin) + " are not all within",
                  "the shared memory has " + std::to_string(size));
  }
  return begin_ + begin;
}

Descriptor SharingReader::TakeDescriptor() {
  if (came_.empty()) throw Failure(Code::kInput, "no descriptor came with the request");
  Descriptor first = std::move(came_.front());
  came_.pop_front();
  return first;
}

ssize_t SharingReader::Receive(void* data, size_t size) {
  alignas(cmsghdr) char control[CMSG_SPACE(kMostDescriptors * sizeof(int))];
  iovec part{data, size};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t count = recvmsg(descriptor(), &message, MSG_CMSG_CLOEXEC);
  if (count < 0) return count;
  for (cmsghdr* each = CMSG_FIRSTHDR(&message); each; each = CMSG_NXTHDR(&message, each)) {
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
    const size_t numbers = (each->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < numbers; ++i) {
      int number;
      std::memcpy(&number, CMSG_DATA(each) + i * sizeof number, sizeof number);
      came_.emplace_back(number);
    }
  }
  if (came_.size() > kMostDescriptors) throw Failure(Code::kInput, "more descriptors came than requests take");
  return count;
}

}  // namespace agent
