// What the runtime's sources use of TVM's helpers for text.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>

namespace tvm {
namespace support {

inline bool IsNumber(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

inline bool StartsWith(const std::string& text, const char* prefix) { return text.rfind(prefix, 0) == 0; }

}  // namespace support
}  // namespace tvm
