// Streams that encode what is written, and decode what is read, as base64.
#pragma once

#include <tvm/ffi/extra/base64.h>
#include <tvm/support/io.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace tvm {
namespace support {

class Base64OutStream : public Stream {
 public:
  explicit Base64OutStream(Stream* target) : target_(target) {}
  using Stream::Read;
  using Stream::Write;
  size_t Read(void*, size_t) final { return 0; }
  size_t Write(const void* data, size_t size) final {
    plain_.append(static_cast<const char*>(data), size);
    return size;
  }
  // Passes on what was written; nothing is before.
  void Finish() {
    const ffi::String text = ffi::Base64Encode(TVMFFIByteArray{plain_.data(), plain_.size()});
    target_->Write(static_cast<const void*>(text.data()), text.size());
    plain_.clear();
  }

 private:
  Stream* target_;
  std::string plain_;
};

class Base64InStream : public Stream {
 public:
  explicit Base64InStream(Stream* source) : source_(source) {}
  using Stream::Read;
  using Stream::Write;
  // Reads the source to its end; call it before the first Read.
  void InitPosition() {
    std::string text;
    char block[4096];
    while (const size_t count = source_->Read(block, sizeof block)) text.append(block, count);
    const ffi::Bytes plain = ffi::Base64Decode(ffi::String(text));
    plain_.assign(plain.data(), plain.size());
  }
  size_t Read(void* data, size_t size) final {
    size = std::min(size, plain_.size() - position_);
    std::memcpy(data, plain_.data() + position_, size);
    position_ += size;
    return size;
  }
  size_t Write(const void*, size_t) final { return 0; }

 private:
  Stream* source_;
  std::string plain_;
  size_t position_ = 0;
};

}  // namespace support
}  // namespace tvm
