// Messages of `agent serve` and `agent service` (docs/agent.md): lines of JSON, each followed by raw bytes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "files.h"

namespace agent {

inline constexpr int kProtocol = 1;

struct Request {
  Json body;
  Json id;  // null if the caller gave none
  int64_t bytes = 0;
};

// What comes from a descriptor as lines and counted bytes.
class RequestReader : public BufferedReader {
 public:
  // `name` is what the descriptor is called in messages.
  RequestReader(int descriptor, std::string name) : BufferedReader(std::move(name)), descriptor_(descriptor) {}

  // Reads the next request, but its bytes; false if the input ended before it. JsonError if it is not a request, and
  // Failure(kInput) if the input ended within it or the line is too long: nobody can tell where the next one begins.
  // `request->id` is there if it was read by then.
  bool Next(Request* request);
  // The next `size` bytes of the request, to `data` or to nowhere. Failure(kInput) if the input ends before.
  void Bytes(void* data, size_t size);
  // Leaves out what was not read of the request's bytes.
  void Discard() { Bytes(nullptr, unread_); }

 protected:
  int descriptor() const { return descriptor_; }
  ssize_t Receive(void* data, size_t size) override;

 private:
  int descriptor_;
  size_t unread_ = 0;  // of the request's bytes
};

// Standard output for replies alone: what a library prints there goes to standard error from now on.
Descriptor TakeStandardOutput();

// Ends the process once nobody can read its replies, even during a measurement, which may take hours.
void EndWithReader(int replies);

// What is said first: the network, and how it is called.
Json Greeting(const Manifest& manifest, int threads, double load_ms, const std::optional<std::string>& device);
Json Reply(const Json& id, bool ok = true);
Json Refusal(const Json& id, Code code, const std::string& error);
void Send(int descriptor, const Json& message);
// Failure(kInput) unless as many bytes of inputs were announced as there are to be.
void RequireInputBytes(int64_t wanted, int64_t announced);
// A whole number that a request states, or `otherwise`.
int64_t NumberOf(const Json& request, const char* name, int64_t otherwise);
// The size of all tensors together.
int64_t BytesOf(const std::vector<TensorSpec>& specs);

}  // namespace agent
