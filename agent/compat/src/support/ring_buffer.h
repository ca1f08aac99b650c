// A queue of bytes. It lies in one piece of memory, whose beginning may have been taken out already.
#pragma once

#include <tvm/ffi/error.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

namespace tvm {
namespace support {

class RingBuffer {
 public:
  size_t bytes_available() const { return bytes_.size() - taken_; }

  // Makes room for `size` bytes from the first one on.
  void Reserve(size_t size) { bytes_.reserve(taken_ + size); }

  void Read(void* data, size_t size) {
    TVM_FFI_ICHECK_GE(bytes_available(), size);
    std::memcpy(data, bytes_.data() + taken_, size);
    Drop(size);
  }

  void Write(const void* data, size_t size) {
    const auto* first = static_cast<const char*>(data);
    bytes_.insert(bytes_.end(), first, first + size);
  }

  // `send(data, size)` takes up to `limit` of the first bytes and returns how many it took.
  template <typename Send>
  size_t ReadWithCallback(Send send, size_t limit) {
    const size_t taken = send(bytes_.data() + taken_, std::min(limit, bytes_available()));
    Drop(taken);
    return taken;
  }

  // `receive(data, size)` puts some bytes at the end, `limit` at most, and returns how many.
  template <typename Receive>
  size_t WriteWithCallback(Receive receive, size_t limit) {
    const size_t before = bytes_.size();
    limit = std::min(limit, kPiece);
    bytes_.resize(before + limit);
    const size_t put = receive(bytes_.data() + before, limit);
    bytes_.resize(before + put);
    return put;
  }

 private:
  static constexpr size_t kPiece = size_t{1} << 18;
  // Memory beyond this is given back.
  static constexpr size_t kKept = size_t{4} << 20;

  void Drop(size_t size) {
    taken_ += size;
    if (bytes_available() > taken_) return;
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(taken_));
    taken_ = 0;
    if (bytes_.capacity() > kKept) bytes_.shrink_to_fit();
  }

  std::vector<char> bytes_;
  size_t taken_ = 0;
};

}  // namespace support
}  // namespace tvm
