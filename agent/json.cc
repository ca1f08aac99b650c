#include "json.h"

#include <tvm/ffi/extra/json.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace agent {
namespace {

namespace ffi = tvm::ffi;

// tvm_ffi's parser, and a scan before it that refuses what it would accept: numbers outside of JSON's grammar, names
// given twice, bytes that are not UTF-8, and nesting that exhausts the stack.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Json Document() {
    Scan();
    ffi::String error;
    const ffi::Any value = ffi::json::Parse(ffi::String(std::move(text_)), &error);
    if (error.empty()) return Converted(value);
    const std::string message = error;  // such as "Expecting value: line 1 column 5 (char 4)"
    const size_t position = std::strtoul(message.c_str() + message.rfind(' ') + 1, nullptr, 10);
    Refuse(position, message.substr(0, message.rfind(": line ")));
  }

 private:
  struct Bracket {
    size_t position;
    size_t members;  // as many as there are colons
  };

  [[noreturn]] static void Refuse(size_t position, const std::string& why) {
    throw JsonError("byte " + std::to_string(position) + ": " + why);
  }

  void Scan() {
    std::vector<size_t> open;
    bool quoted = false;
    for (size_t at = 0; at < text_.size(); ++at) {
      const char c = text_[at];
      if (static_cast<unsigned char>(c) >= 0x80) {
        const size_t size = Utf8Size(std::string_view(text_).substr(at));
        if (size == 0) Refuse(at, "bytes that are not UTF-8");
        at += size - 1;
      } else if (c == '"') {
        quoted = !quoted;
      } else if (quoted) {
        at += c == '\\';  // an escaped quote ends no string
      } else if (c == '{' || c == '[') {
        if (open.size() == kMaximumJsonDepth) Refuse(at, "it is nested too deeply");
        open.push_back(brackets_.size());
        brackets_.push_back({at, 0});
      } else if ((c == '}' || c == ']') && !open.empty()) {
        open.pop_back();
      } else if (c == ':' && !open.empty()) {
        ++brackets_[open.back()].members;
      } else if (IsDigit(c) || c == '-' || c == '+' || c == '.') {
        at = TakeNumber(at);
      } else if (c == 'I' || c == 'N') {
        Refuse(at, "neither Infinity nor NaN is JSON");
      }
    }
  }

  // Keeps a number and leaves a 0 in its place: tvm_ffi reads more grammars than JSON's, and no subnormal numbers.
  // Returns the position of its last character.
  size_t TakeNumber(size_t begin) {
    const size_t end = std::min(text_.find_first_not_of("+-.0123456789eE", begin), text_.size());
    const std::string digits = text_.substr(begin, end - begin);
    char* stop = nullptr;
    const double value = std::strtod(digits.c_str(), &stop);
    const char* first = digits.c_str() + (digits[0] == '-');
    const size_t point = digits.find('.');
    if (*stop != '\0' || !IsDigit(first[0]) || (first[0] == '0' && IsDigit(first[1])) ||
        (point != std::string::npos && !IsDigit(digits[point + 1]))) {
      Refuse(begin, "invalid number");
    }
    if (!std::isfinite(value)) Refuse(begin, "the number is too large");
    int64_t whole = 0;
    const auto [rest, error] = std::from_chars(digits.data(), stop, whole);
    if (error == std::errc() && rest == stop) {
      numbers_.emplace_back(whole);
    } else {
      numbers_.emplace_back(value);
    }
    text_.replace(begin, digits.size(), digits.size(), ' ');
    text_[begin] = '0';
    return end - 1;
  }

  static bool IsDigit(char c) { return c >= '0' && c <= '9'; }

  // Meets brackets and numbers in the order of the scan: tvm_ffi's maps keep it.
  Json Converted(const ffi::Any& value) {
    switch (value.type_index()) {
      case ffi::TypeIndex::kTVMFFINone:
        return Json();
      case ffi::TypeIndex::kTVMFFIBool:
        return Json(value.cast<bool>());
      case ffi::TypeIndex::kTVMFFIInt:
        return numbers_.at(next_number_++);
      case ffi::TypeIndex::kTVMFFIArray: {
        ++next_bracket_;
        Json array{Json::Array{}};
        for (const ffi::Any& element : value.cast<ffi::json::Array>()) array.Add(Converted(element));
        return array;
      }
      case ffi::TypeIndex::kTVMFFIMap: {
        const Bracket& bracket = brackets_.at(next_bracket_++);
        const auto members = value.cast<ffi::json::Object>();
        if (members.size() != bracket.members) Refuse(bracket.position, "a name comes twice in the object");
        Json object = Json::NewObject();
        for (const auto& [name, member] : members) object.Set(name.cast<std::string>(), Converted(member));
        return object;
      }
      default:
        return Json(value.cast<std::string>());
    }
  }

  std::string text_;
  std::vector<Bracket> brackets_;
  std::vector<Json> numbers_;
  size_t next_bracket_ = 0;
  size_t next_number_ = 0;
};

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      quoted += escape;
    } else {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
  }
  return quoted + '"';
}

// The shortest of the usual precisions that reads back as the same number.
std::string Digits(double value) {
  if (!std::isfinite(value)) return "null";
  char digits[32];
  for (const int precision : {6, 9, 15, 17}) {
    std::snprintf(digits, sizeof digits, "%.*g", precision, value);
    if (std::strtod(digits, nullptr) == value) break;
  }
  return digits;
}

struct Writer {
  std::string operator()(std::nullptr_t) const { return "null"; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return Digits(value); }
  std::string operator()(const std::string& value) const { return Quoted(value); }
  std::string operator()(const Json::Array& value) const {
    std::string line;
    for (const Json& element : value) line += (line.empty() ? "" : ", ") + element.Dump();
    return '[' + line + ']';
  }
  std::string operator()(const Json::Object& value) const {
    std::string line;
    for (const auto& [name, member] : value) line += (line.empty() ? "" : ", ") + Quoted(name) + ": " + member.Dump();
    return '{' + line + '}';
  }
};

template <typename Kind, typename Variant>
const Kind& Wanted(const Variant& value, const char* name) {
  const Kind* found = std::get_if<Kind>(&value);
  if (!found) throw JsonError(std::string("it is not ") + name);
  return *found;
}

}  // namespace

Json Json::NewObject(std::initializer_list<Member> members) {
  Json object;
  object.value_ = Object(members);
  return object;
}

const std::string& Json::text() const { return Wanted<std::string>(value_, "a string"); }
bool Json::truth() const { return Wanted<bool>(value_, "a truth value"); }
int64_t Json::integer() const { return Wanted<int64_t>(value_, "an integer"); }
const Json::Array& Json::array() const { return Wanted<Array>(value_, "an array"); }
const Json::Object& Json::object() const { return Wanted<Object>(value_, "an object"); }
double Json::number() const {
  if (const int64_t* whole = std::get_if<int64_t>(&value_)) return static_cast<double>(*whole);
  return Wanted<double>(value_, "a number");
}

const Json* Json::find(std::string_view name) const {
  for (const Member& member : object()) {
    if (member.name == name) return &member.value;
  }
  return nullptr;
}

const Json& Json::at(std::string_view name) const {
  const Json* found = find(name);
  if (!found) throw JsonError("there is no field '" + std::string(name) + "'");
  return *found;
}

Json& Json::Set(std::string name, Json value) {
  std::get<Object>(value_).push_back({std::move(name), std::move(value)});
  return *this;
}

Json& Json::Add(Json value) {
  std::get<Array>(value_).push_back(std::move(value));
  return *this;
}

std::string Json::Dump() const { return std::visit(Writer(), value_); }

Json ParseJson(std::string_view text) { return Parser(text).Document(); }

}  // namespace agent
