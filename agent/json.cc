#include "json.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <unordered_set>

namespace agent {
namespace {

void AppendUtf8(uint32_t point, std::string* text) {
  if (point < 0x80) {
    *text += static_cast<char>(point);
  } else if (point < 0x800) {
    *text += static_cast<char>(0xC0 | (point >> 6));
    *text += static_cast<char>(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    *text += static_cast<char>(0xE0 | (point >> 12));
    *text += static_cast<char>(0x80 | ((point >> 6) & 0x3F));
    *text += static_cast<char>(0x80 | (point & 0x3F));
  } else {
    *text += static_cast<char>(0xF0 | (point >> 18));
    *text += static_cast<char>(0x80 | ((point >> 12) & 0x3F));
    *text += static_cast<char>(0x80 | ((point >> 6) & 0x3F));
    *text += static_cast<char>(0x80 | (point & 0x3F));
  }
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Json Document() {
    Json value = Value(0);
    SkipSpace();
    if (!AtEnd()) Refuse("something follows the value");
    return value;
  }

 private:
  [[noreturn]] void Refuse(const std::string& why) const {
    throw JsonError("byte " + std::to_string(position_) + ": " + why);
  }
  bool AtEnd() const { return position_ == text_.size(); }
  char Peek() const { return AtEnd() ? '\0' : text_[position_]; }
  bool PeekDigit() const { return Peek() >= '0' && Peek() <= '9'; }
  char Next() {
    if (AtEnd()) Refuse("the text ends too early");
    return text_[position_++];
  }
  bool Take(char wanted) {
    if (AtEnd() || text_[position_] != wanted) return false;
    ++position_;
    return true;
  }
  void Expect(char wanted) {
    if (!Take(wanted)) Refuse(std::string("there is no '") + wanted + "'");
  }
  void SkipSpace() {
    while (!AtEnd() && (Peek() == ' ' || Peek() == '\t' || Peek() == '\n' || Peek() == '\r')) ++position_;
  }

  Json Value(int depth) {
    if (depth > kMaximumJsonDepth) Refuse("it is nested too deeply");
    SkipSpace();
    switch (Peek()) {
      case '{':
        return ObjectValue(depth);
      case '[':
        return ArrayValue(depth);
      case '"':
        return Json(Text());
      case 't':
        return Word("true", Json(true));
      case 'f':
        return Word("false", Json(false));
      case 'n':
        return Word("null", Json());
      default:
        return Number();
    }
  }

  Json Word(std::string_view word, Json value) {
    if (text_.substr(position_, word.size()) != word) Refuse("there is no value");
    position_ += word.size();
    return value;
  }

  Json ObjectValue(int depth) {
    Json object = Json::NewObject();
    std::unordered_set<std::string> names;
    Expect('{');
    SkipSpace();
    if (Take('}')) return object;
    do {
      SkipSpace();
      std::string name = Text();
      if (!names.insert(name).second) Refuse("the name '" + name + "' comes twice");
      SkipSpace();
      Expect(':');
      object.Set(std::move(name), Value(depth + 1));
      SkipSpace();
    } while (Take(','));
    Expect('}');
    return object;
  }

  Json ArrayValue(int depth) {
    Json array{Json::Array{}};
    Expect('[');
    SkipSpace();
    if (Take(']')) return array;
    do {
      array.Add(Value(depth + 1));
      SkipSpace();
    } while (Take(','));
    Expect(']');
    return array;
  }

  std::string Text() {
    Expect('"');
    std::string text;
    for (;;) {
      const char c = Next();
      if (c == '"') return text;
      if (static_cast<unsigned char>(c) < 0x20) Refuse("a control character stands in a string");
      if (c == '\\') {
        Escape(&text);
      } else if (static_cast<unsigned char>(c) < 0x80) {
        text += c;
      } else {
        --position_;
        Utf8(&text);
      }
    }
  }

  void Escape(std::string* text) {
    switch (Next()) {
      case '"':
        *text += '"';
        break;
      case '\\':
        *text += '\\';
        break;
      case '/':
        *text += '/';
        break;
      case 'b':
        *text += '\b';
        break;
      case 'f':
        *text += '\f';
        break;
      case 'n':
        *text += '\n';
        break;
      case 'r':
        *text += '\r';
        break;
      case 't':
        *text += '\t';
        break;
      case 'u':
        EscapedPoint(text);
        break;
      default:
        Refuse("an unknown escape");
    }
  }

  uint32_t FourHexDigits() {
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = Next();
      if (c >= '0' && c <= '9') {
        value = value * 16 + static_cast<uint32_t>(c - '0');
      } else if (c >= 'a' && c <= 'f') {
        value = value * 16 + static_cast<uint32_t>(c - 'a' + 10);
      } else if (c >= 'A' && c <= 'F') {
        value = value * 16 + static_cast<uint32_t>(c - 'A' + 10);
      } else {
        Refuse("an escape needs four hexadecimal digits");
      }
    }
    return value;
  }

  void EscapedPoint(std::string* text) {
    uint32_t point = FourHexDigits();
    if (point >= 0xD800 && point < 0xDC00) {
      if (!Take('\\') || !Take('u')) Refuse("half of a surrogate pair");
      const uint32_t low = FourHexDigits();
      if (low < 0xDC00 || low > 0xDFFF) Refuse("half of a surrogate pair");
      point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
    } else if (point >= 0xDC00 && point <= 0xDFFF) {
      Refuse("half of a surrogate pair");
    }
    AppendUtf8(point, text);
  }

  // One character beyond ASCII, in the shortest form and no surrogate (RFC 3629).
  void Utf8(std::string* text) {
    const size_t begin = position_;
    const auto first = static_cast<unsigned char>(Next());
    const int more = first >= 0xF0 && first <= 0xF4 ? 3 : first >= 0xE0 && first < 0xF0 ? 2 : first >= 0xC2 && first < 0xE0 ? 1 : 0;
    if (more == 0) Refuse("bytes that are not UTF-8");
    uint32_t point = first & (0x3F >> more);
    for (int i = 0; i < more; ++i) {
      const auto next = static_cast<unsigned char>(Next());
      if ((next & 0xC0) != 0x80) Refuse("bytes that are not UTF-8");
      point = (point << 6) | (next & 0x3F);
    }
    constexpr uint32_t kSmallest[] = {0, 0x80, 0x800, 0x10000};
    if (point < kSmallest[more] || point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF)) {
      Refuse("bytes that are not UTF-8");
    }
    text->append(text_.substr(begin, position_ - begin));
  }

  void Digits() {
    if (!PeekDigit()) Refuse("there is no value");
    while (PeekDigit()) ++position_;
  }

  Json Number() {
    const size_t begin = position_;
    Take('-');
    if (!Take('0')) Digits();
    bool whole = true;
    if (Take('.')) {
      whole = false;
      Digits();
    }
    if (Take('e') || Take('E')) {
      whole = false;
      if (!Take('+')) Take('-');
      Digits();
    }
    const std::string digits(text_.substr(begin, position_ - begin));
    if (whole) {
      int64_t value = 0;
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
      if (error == std::errc() && end == digits.data() + digits.size()) return Json(value);
    }
    const double value = std::strtod(digits.c_str(), nullptr);
    if (!std::isfinite(value)) Refuse("the number is too large");
    return Json(value);
  }

  std::string_view text_;
  size_t position_ = 0;
};

void DumpText(const std::string& text, std::string* line) {
  *line += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      *line += '\\';
      *line += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      *line += escape;
    } else {
      *line += c;
    }
  }
  *line += '"';
}

// The shortest of the usual precisions that reads back as the same number.
void DumpNumber(double value, std::string* line) {
  if (!std::isfinite(value)) {
    *line += "null";
    return;
  }
  char digits[32];
  for (const int precision : {6, 9, 15, 17}) {
    std::snprintf(digits, sizeof digits, "%.*g", precision, value);
    if (std::strtod(digits, nullptr) == value) break;
  }
  *line += digits;
}

template <typename Kind, typename Variant>
const Kind& Wanted(const Variant& value, const char* name) {
  const Kind* found = std::get_if<Kind>(&value);
  if (!found) throw JsonError(std::string("it is not ") + name);
  return *found;
}

}  // namespace

Json Json::NewObject() {
  Json object;
  object.value_ = Object{};
  return object;
}

const std::string& Json::text() const { return Wanted<std::string>(value_, "a string"); }
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

std::string Json::Dump() const {
  std::string line;
  DumpTo(&line);
  return line;
}

void Json::DumpTo(std::string* line) const {
  if (const auto* object = std::get_if<Object>(&value_)) {
    *line += '{';
    const char* separator = "";
    for (const Member& member : *object) {
      *line += separator;
      DumpText(member.name, line);
      *line += ": ";
      member.value.DumpTo(line);
      separator = ", ";
    }
    *line += '}';
  } else if (const auto* array = std::get_if<Array>(&value_)) {
    *line += '[';
    const char* separator = "";
    for (const Json& element : *array) {
      *line += separator;
      element.DumpTo(line);
      separator = ", ";
    }
    *line += ']';
  } else if (const auto* text = std::get_if<std::string>(&value_)) {
    DumpText(*text, line);
  } else if (const auto* whole = std::get_if<int64_t>(&value_)) {
    *line += std::to_string(*whole);
  } else if (const auto* number = std::get_if<double>(&value_)) {
    DumpNumber(*number, line);
  } else if (const auto* truth = std::get_if<bool>(&value_)) {
    *line += *truth ? "true" : "false";
  } else {
    *line += "null";
  }
}

Json ParseJson(std::string_view text) { return Parser(text).Document(); }

}  // namespace agent
