#include "unix_socket.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace agent {
namespace {

constexpr int kWaiting = 64;
// Descriptors that may wait to be taken.
constexpr size_t kMostDescriptors = 4;

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    throw Failure(Code::kUsage, "the path of the socket has " + std::to_string(path.size()) + " bytes",
                  "it has from 1 to " + std::to_string(sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Descriptor NewSocket(int flags) {
  Descriptor made(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (!made) throw Failure(Code::kOther, "there is no further socket", SystemError());
  return made;
}

// Makes room for a socket: what a service left that was killed.
void RemoveAbandoned(const std::string& path, const sockaddr_un& address) {
  struct stat status{};
  if (lstat(path.c_str(), &status) != 0) return;
  if (!S_ISSOCK(status.st_mode)) throw Failure(Code::kOther, "cannot listen at " + path, "something else lies there");
  const Descriptor probe = NewSocket(SOCK_NONBLOCK);
  if (connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 || errno != ECONNREFUSED) {
    throw Failure(Code::kOther, "cannot listen at " + path, "another program answers there");
  }
  unlink(path.c_str());
}

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

UnixListener::UnixListener(std::string path) : path_(std::move(path)) {
  const sockaddr_un address = AddressOf(path_);
  RemoveAbandoned(path_, address);
  Descriptor made = NewSocket(SOCK_NONBLOCK);
  const mode_t before = umask(0177);  // from its first moment on nobody else may connect
  const bool bound = bind(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  const std::string why = SystemError();
  umask(before);
  if (!bound) throw Failure(Code::kOther, "cannot listen at " + path_, why);
  listener_ = std::move(made);
  if (listen(listener_.get(), kWaiting) != 0) throw Failure(Code::kOther, "cannot listen at " + path_, SystemError());
}

Descriptor UnixListener::Accept() const { return Descriptor(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)); }

void UnixListener::Close() {
  if (!listener_) return;
  unlink(path_.c_str());
  listener_ = Descriptor();
}

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

Notifier::Notifier() : address_(Environment("NOTIFY_SOCKET")) {
  const std::string pid = Environment("WATCHDOG_PID");
  if (pid.empty() || pid == std::to_string(getpid())) {
    const long long us = std::strtoll(Environment("WATCHDOG_USEC").c_str(), nullptr, 10);
    if (us >= 1000) watchdog_ = std::chrono::milliseconds(us / 1000);
  }
  const bool is_address = !address_.empty() && (address_[0] == '/' || address_[0] == '@');
  if (!is_address || address_.size() >= sizeof(sockaddr_un::sun_path)) {
    address_.clear();
    return;
  }
  if (address_[0] == '@') address_[0] = '\0';
  socket_ = Descriptor(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

void Notifier::Tell(const std::string& state) const {
  if (!socket_) return;
  const sockaddr_un to = AddressOf(address_);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  const ssize_t sent = sendto(socket_.get(), state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                              reinterpret_cast<const sockaddr*>(&to), size);
  static_cast<void>(sent);
}

}  // namespace agent
