// Streams of base64. The runtime takes them for tensors in JSON alone, and what would ask it for those is no part of an
// agent.
#pragma once

#include <tvm/ffi/error.h>
#include <tvm/support/io.h>

namespace tvm {
namespace support {

class NoBase64Stream : public Stream {
 public:
  explicit NoBase64Stream(Stream*) { TVM_FFI_THROW(RuntimeError) << "agents know no base64"; }
  using Stream::Read;
  using Stream::Write;
  size_t Read(void*, size_t) final { return 0; }
  size_t Write(const void*, size_t) final { return 0; }
  void Finish() {}
  void InitPosition() {}
};
using Base64OutStream = NoBase64Stream;
using Base64InStream = NoBase64Stream;

}  // namespace support
}  // namespace tvm
