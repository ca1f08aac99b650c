// TCP connections of the RPC server.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "files.h"

namespace agent {

// A connection; every transfer is whole, or throws Failure(kOther). Integers are 32 bits, little-endian, as TVM's.
class Connection {
 public:
  Connection() = default;
  explicit Connection(Descriptor descriptor) : descriptor_(std::move(descriptor)) {}
  explicit operator bool() const { return static_cast<bool>(descriptor_); }
  int get() const { return descriptor_.get(); }

  void SendInteger(int32_t value) { Send(&value, sizeof value); }
  int32_t ReceiveInteger();
  // A length and as many bytes; lengths beyond `most` are refused.
  void SendText(const std::string& text);
  std::string ReceiveText(int32_t most);
  // Transfers that take longer fail; 0 waits for ever.
  void SetTimeout(int seconds);
  // No delay for small messages, and an end if the other side has vanished.
  void SetForSession();

 private:
  void Send(const void* data, size_t size);
  void Receive(void* data, size_t size);

  Descriptor descriptor_;
};

// Failure(kOther) if `host` cannot be resolved or nobody listens.
Connection Connect(const std::string& host, const std::string& port);
// Listens on the first free port of a range, 0 for any; the second is the port.
std::pair<Descriptor, int> Listen(const std::string& host, int first, int last);

}  // namespace agent
