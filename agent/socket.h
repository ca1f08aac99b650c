// TCP connections of the RPC server. None of them blocks but in a session: whoever waits does so through `Watch`.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "files.h"
#include "watch.h"

namespace agent {

// A connection that is ours alone to use; all failures are Failure(kOther). Integers are 32 bits, little-endian, as
// TVM's.
class Connection : public Descriptor {
 public:
  Connection() = default;
  explicit Connection(Descriptor descriptor) : Descriptor(std::move(descriptor)) {}

  // Appends what has come, up to `most` bytes. Returns false if nothing more can come.
  bool Receive(std::string* text, size_t most);
  // Sends all that is accepted at once, and returns how many bytes that is.
  size_t Send(const std::string& text);
  // What is sent or received in full, or not before the deadline, which fails.
  void SendAll(const std::string& text, Watch& watch, Clock::time_point deadline);
  std::string ReceiveExactly(size_t size, Watch& watch, Clock::time_point deadline);
  // For a session, which waits by itself: no delay for small messages, and an end if the other side has vanished.
  void SetForSession();
  // Whether transfers wait.
  void SetBlocking(bool blocking);
};

std::string IntegerBytes(int32_t value);
// Of the first four of some bytes.
int32_t IntegerOf(const std::string& bytes);

// Failure(kOther) if `host` cannot be resolved, or nobody listens who answers before the deadline.
Connection Connect(const std::string& host, const std::string& port, Watch& watch, Clock::time_point deadline);
// Listens on the first free port of a range, 0 for any; the second is the port.
std::pair<Descriptor, int> Listen(const std::string& host, int first, int last, Watch& watch);

}  // namespace agent
