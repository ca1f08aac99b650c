// Failures, and the exit codes that docs/agent.md promises for them.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace agent {

enum class Code {
  kDone = 0,
  kOther = 1,
  kUsage = 2,
  kDifferent = 6,
  kInput = 7,
  kPackage = 8,
  kOutput = 10,
  kDevice = 21,
  kInternal = 70,
};

// How many bytes the first character of a text has; 0 if it is not UTF-8 (RFC 3629).
size_t Utf8Size(std::string_view text);

// Text that moves no cursor, rings no bell and turns no direction of writing: what packages and files call things goes
// to terminals. Control characters and invalid UTF-8 are escaped; line breaks are kept if `lines` is set.
std::string Printable(std::string_view text, bool lines = false);

class Failure : public std::runtime_error {
 public:
  Failure(Code code, const std::string& what) : std::runtime_error(Printable(what, true)), code_(code) {}
  Failure(Code code, const std::string& what, const std::string& why) : Failure(code, what + ": " + why) {}
  Code code() const { return code_; }

 private:
  Code code_;
};

// The message of the last failed system call.
std::string SystemError();

}  // namespace agent
