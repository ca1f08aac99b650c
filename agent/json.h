// JSON as RFC 8259 has it, read from sources that are not trusted, and written on one line.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "failure.h"

namespace agent {

class JsonError : public std::runtime_error {
 public:
  explicit JsonError(const std::string& what) : std::runtime_error(Printable(what)) {}
};

// One value. Numbers without fraction and exponent that fit are int64, all others double.
class Json {
 public:
  struct Member;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;  // in the order in which they were added

  Json() = default;
  Json(std::nullptr_t) {}
  Json(bool value) : value_(value) {}
  Json(int value) : value_(static_cast<int64_t>(value)) {}
  Json(int64_t value) : value_(value) {}
  Json(double value) : value_(value) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(Array value) : value_(std::move(value)) {}
  static Json NewObject(std::initializer_list<Member> members = {});
  // Counts of bytes, which no machine of ours lets grow beyond int64.
  static Json Size(uint64_t value) { return Json(static_cast<int64_t>(value)); }

  // The value as one of its kinds; JsonError says which was wanted.
  const std::string& text() const;
  bool truth() const;
  int64_t integer() const;
  double number() const;
  const Array& array() const;
  const Object& object() const;

  bool is_object() const { return std::holds_alternative<Object>(value_); }
  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }

  // The member of an object; JsonError if there is none, or no object.
  const Json& at(std::string_view name) const;
  // Null if there is no such member.
  const Json* find(std::string_view name) const;

  // Adds a member to an object, or an element to an array.
  Json& Set(std::string name, Json value);
  Json& Add(Json value);

  // One line. Numbers that JSON cannot hold become null.
  std::string Dump() const;

 private:
  std::variant<std::nullptr_t, bool, int64_t, double, std::string, Array, Object> value_ = nullptr;
};

struct Json::Member {
  std::string name;
  Json value;
};

// Deeper nesting than this is refused, so that no input exhausts the stack.
inline constexpr int kMaximumJsonDepth = 32;

// Parses one value and nothing after it. Refused are: bytes that are not UTF-8, names given twice in an object,
// nesting beyond kMaximumJsonDepth, and numbers beyond double.
Json ParseJson(std::string_view text);

}  // namespace agent
