#include "vision/ultralytics_metadata.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>

#include "json.h"

namespace agent {
namespace {

// A network has as many values for each place as it has classes: far more than any is trained for.
constexpr size_t kMostClasses = 1 << 16;
constexpr int64_t kMostPoints = 4096;

// How many hexadecimal digits follow an escape; 0 for those that have none.
size_t Digits(char escape) { return escape == 'x' ? 2 : escape == 'u' ? 4 : escape == 'U' ? 8 : 0; }

// What a string of Python's, whose quote is at `at`, is in JSON; `at` goes to its end.
std::string QuotedAt(const std::string& text, size_t* at) {
  const char quote = text[*at];
  std::string json = "\"";
  for (++*at; *at < text.size() && text[*at] != quote; ++*at) {
    const char c = text[*at];
    if (c == '"') {
      json += "\\\"";
    } else if (c != '\\' || ++*at == text.size()) {
      json += c;
    } else if (const size_t digits = Digits(text[*at])) {
      const std::string stated = text.substr(*at + 1, digits);
      uint32_t code = 0;
      const auto [rest, error] = std::from_chars(stated.data(), stated.data() + stated.size(), code, 16);
      if (error != std::errc() || rest != stated.data() + digits || code > 0x10FFFF) throw JsonError("no character");
      char escaped[16];
      if (code < 0x10000) {
        std::snprintf(escaped, sizeof escaped, "\\u%04x", code);
      } else {
        const uint32_t more = code - 0x10000;
        std::snprintf(escaped, sizeof escaped, "\\u%04x\\u%04x", 0xD800 | more >> 10, 0xDC00 | (more & 0x3FF));
      }
      json += escaped;
      *at += digits;
    } else if (text[*at] == '\'') {
      json += '\'';
    } else {
      json += {'\\', text[*at]};
    }
  }
  return json + (*at < text.size() ? "\"" : "");
}

// Texts and whole numbers, and lists, tuples and mappings of them, as Python's str() writes them.
Json FromPython(const std::string& text) {
  std::string json;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    const bool closes = c == ')' || c == ']' || c == '}';
    if (closes && !json.empty() && json.back() == ',') json.pop_back();
    if (c == '\'' || c == '"') {
      json += QuotedAt(text, &at);
    } else if (c == ':') {  // after a number, which is text in JSON
      json.insert(json.find_last_not_of("0123456789") + 1, "\"");
      json += "\":";
    } else {
      json += c == '(' ? '[' : c == ')' ? ']' : c;
    }
  }
  return ParseJson(json);
}

std::vector<std::string> NamesOf(const Json& json) {
  std::vector<std::string> names;
  if (!json.is_object()) {
    for (const Json& each : json.array()) names.push_back(each.text());
    return names;
  }
  for (const auto& [key, name] : json.object()) {
    size_t number = 0;
    const auto [rest, error] = std::from_chars(key.data(), key.data() + key.size(), number);
    if (error != std::errc() || *rest != '\0' || number >= kMostClasses) throw JsonError("no number of a class");
    while (names.size() <= number) names.push_back(std::to_string(names.size()));  // for a name that is missing
    names[number] = name.text();
  }
  return names;
}

void Read(const std::string& key, const std::string& text, UltralyticsDescription* description) {
  if (key == "task") {
    if (text.empty() || !std::all_of(text.begin(), text.end(), [](char c) { return c >= 'a' && c <= 'z'; })) {
      throw JsonError("no word");
    }
    description->task = text;
  } else if (key == "names") {
    description->names = NamesOf(FromPython(text));
  } else if (key == "kpt_shape") {
    const Json shape = FromPython(text);
    if (shape.array().size() != 2) throw JsonError("no pair");
    description->points = {shape.array()[0].integer(), shape.array()[1].integer()};
    const auto [count, values] = description->points;
    if (count < 1 || count > kMostPoints || values < 2 || values > 3) throw JsonError("no shape of points");
  }
}

}  // namespace

UltralyticsDescription DescribeUltralytics(const std::vector<std::pair<std::string, std::string>>& metadata) {
  UltralyticsDescription description;
  for (const auto& [key, text] : metadata) {
    try {
      Read(key, text, &description);
    } catch (const JsonError&) {
      throw Failure(Code::kInput, "the entry '" + key + "' of the network's metadata cannot be read",
                    "it is not a value that Ultralytics writes");
    }
  }
  return description;
}

}  // namespace agent
