// What happens to a service, one line of JSON for each event, on standard output or in a file of bounded size.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "files.h"
#include "json.h"

namespace agent {

class EventLog {
 public:
  // Lines go to `output`.
  explicit EventLog(Descriptor output) : output_(std::move(output)) {}
  // Lines go to a file, which becomes `path`.1 before it would have more than `most` bytes; what was called so goes.
  // Failure(kOutput) if it cannot be opened.
  EventLog(std::string path, uint64_t most);

  // Writes {"time": ..., "event": name, ...} with the members of `about`. A line that cannot be written is left out,
  // which standard error is told once.
  void Write(const char* name, const Json& about);

 private:
  void Open();
  void Rotate();

  std::mutex mutex_;
  std::string path_;  // empty for standard output
  uint64_t most_ = 0;
  uint64_t size_ = 0;
  Descriptor output_;
  bool has_failed_ = false;
};

}  // namespace agent
