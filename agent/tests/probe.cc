// Shows parts of the agent to its tests, which compare them with other programs (tests/unit/test_agent_parts.py).

#include <builtin_fp16.h>

#include <cstdio>
#include <iostream>
#include <iterator>
#include <string>

#include "failure.h"
#include "json.h"
#include "machine.h"
#include "manifest.h"
#include "rpc_session.h"
#include "sha256.h"
#include "statistics.h"

namespace {

std::string Input() { return {std::istreambuf_iterator<char>(std::cin), {}}; }

std::string Unhex(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return bytes;
}

// Each line is a document in hexadecimal; it is printed as JSON again, or as the reason why it is refused.
template <typename Parse>
void EachLine(Parse parse) {
  for (std::string line; std::getline(std::cin, line);) {
    try {
      std::cout << parse(Unhex(line)) << '\n';
    } catch (const std::runtime_error& error) {
      std::cout << "refused: " << error.what() << '\n';
    }
  }
}

// Raw numbers of one type to raw numbers of another.
template <typename From, typename To, typename Convert>
void EachNumber(Convert convert) {
  const std::string input = Input();
  const auto* numbers = reinterpret_cast<const From*>(input.data());
  for (size_t i = 0; i < input.size() / sizeof(From); ++i) {
    const To converted = convert(numbers[i]);
    std::fwrite(&converted, sizeof converted, 1, stdout);
  }
}

}  // namespace

int main(int count, char** values) {
  const std::string part = count > 1 ? values[1] : "";
  if (part == "json") {
    EachLine([](const std::string& text) { return agent::ParseJson(text).Dump(); });
  } else if (part == "manifest") {
    EachLine([](const std::string& text) { return agent::ParseManifest(text).model; });
  } else if (part == "sha256") {
    agent::Sha256 digest;
    const std::string input = Input();
    // In uneven pieces, so that blocks are cut everywhere.
    for (size_t at = 0, size = 1; at < input.size(); at += size, size = size % 97 + 13) {
      size = std::min(size, input.size() - at);
      digest.Update(input.data() + at, size);
    }
    std::cout << digest.Finish();
  } else if (part == "float32-to-float16") {
    EachNumber<float, uint16_t>([](float x) { return __truncXfYf2__<float, uint32_t, 23, uint16_t, uint16_t, 10>(x); });
  } else if (part == "float64-to-float16") {
    EachNumber<double, uint16_t>(
        [](double x) { return __truncXfYf2__<double, uint64_t, 52, uint16_t, uint16_t, 10>(x); });
  } else if (part == "float16-to-float32") {
    EachNumber<uint16_t, float>(
        [](uint16_t x) { return __extendXfYf2__<uint16_t, uint16_t, 10, float, uint32_t, 23>(x); });
  } else if (part == "statistics") {
    std::vector<double> runs(std::istream_iterator<double>(std::cin), {});
    agent::Json json = agent::Json::NewObject();
    agent::AddStatistics(runs, &json);
    std::cout << json.Dump();
  } else if (part == "version-is-at-least") {
    std::cout << agent::VersionIsAtLeast(values[2], values[3]);
  } else if (part == "work-path") {
    EachLine([](const std::string& name) { return agent::WorkPath("/work", name); });
  } else {
    return 2;
  }
  return 0;
}
