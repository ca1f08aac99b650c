// A queue of bytes. It lies in one piece of memory and moves to its front when room runs out at the end.
#pragma once

#include <tvm/ffi/error.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace tvm {
namespace support {

class RingBuffer {
 public:
  size_t bytes_available() const { return end_ - begin_; }

  // Makes room for `size` bytes from the first one on.
  void Reserve(size_t size) {
    if (begin_ + size > bytes_.size()) MakeRoom(size - std::min(size, bytes_available()));
  }

  void Read(void* data, size_t size) {
    TVM_FFI_ICHECK_GE(bytes_available(), size);
    std::memcpy(data, bytes_.data() + begin_, size);
    Drop(size);
  }

  void Write(const void* data, size_t size) {
    MakeRoom(size);
    std::memcpy(bytes_.data() + end_, data, size);
    end_ += size;
  }

  // `send(data, size)` takes up to `limit` of the first bytes and returns how many it took.
  template <typename Send>
  size_t ReadWithCallback(Send send, size_t limit) {
    const size_t taken = send(bytes_.data() + begin_, std::min(limit, bytes_available()));
    Drop(taken);
    return taken;
  }

  // `receive(data, size)` puts up to `limit` bytes at the end and returns how many it put.
  template <typename Receive>
  size_t WriteWithCallback(Receive receive, size_t limit) {
    MakeRoom(limit);
    const size_t put = receive(bytes_.data() + end_, limit);
    end_ += put;
    return put;
  }

 private:
  // Beyond this, memory is given back when the queue runs empty.
  static constexpr size_t kKept = size_t{4} << 20;

  void Drop(size_t size) {
    begin_ += size;
    if (begin_ < end_) return;
    begin_ = end_ = 0;
    if (bytes_.size() > kKept) std::vector<char>().swap(bytes_);
  }

  void MakeRoom(size_t size) {
    if (end_ + size <= bytes_.size()) return;
    if (begin_ > 0) {
      std::memmove(bytes_.data(), bytes_.data() + begin_, bytes_available());
      end_ -= begin_;
      begin_ = 0;
    }
    if (end_ + size > bytes_.size()) bytes_.resize(std::max(end_ + size, 2 * bytes_.size()));
  }

  std::vector<char> bytes_;
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace support
}  // namespace tvm
