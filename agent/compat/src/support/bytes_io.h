// Streams over bytes in memory.
#pragma once

#include <tvm/ffi/error.h>
#include <tvm/ffi/string.h>
#include <tvm/support/io.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace tvm {
namespace support {

class BytesOutStream : public Stream {
 public:
  explicit BytesOutStream(std::string* target) : target_(target) {}
  using Stream::Read;
  using Stream::Write;
  size_t Read(void*, size_t) final { TVM_FFI_THROW(InternalError) << "the stream is for writing"; }
  size_t Write(const void* data, size_t size) final {
    target_->append(static_cast<const char*>(data), size);
    return size;
  }

 private:
  std::string* target_;
};

// The bytes must outlive the stream.
class BytesInStream : public Stream {
 public:
  explicit BytesInStream(const std::string& source) : next_(source.data()), left_(source.size()) {}
  explicit BytesInStream(const ffi::Bytes& source) : next_(source.data()), left_(source.size()) {}
  using Stream::Read;
  using Stream::Write;
  size_t Read(void* data, size_t size) final {
    size = std::min(size, left_);
    if (size > 0) std::memcpy(data, next_, size);
    next_ += size;
    left_ -= size;
    return size;
  }
  size_t Write(const void*, size_t) final { TVM_FFI_THROW(InternalError) << "the stream is for reading"; }

 private:
  const char* next_;
  size_t left_;
};

}  // namespace support
}  // namespace tvm
