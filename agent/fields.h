// Objects of JSON as records: each field is named once, with the values that it can have. Its default is the value that
// the record has before it is read.
#pragma once

#include <initializer_list>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "json.h"

namespace agent {

// The values of a number, or of the numbers in a list. Whole numbers without a largest one are cut off at 2^31.
struct Limits {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool above = false;  // whether `least` itself is excluded
  size_t items = 0;    // the least number of items in a list, and the largest
  size_t most_items = std::numeric_limits<size_t>::max();
};
inline constexpr Limits kFraction{0, 1};
inline constexpr Limits kPositive{0, std::numeric_limits<double>::infinity(), true};
inline constexpr Limits kCount{1};

constexpr Limits OneOrMore(Limits each = {}) {
  each.items = 1;
  return each;
}

// The words for the values of a truth value or an enumeration, from its first value on: one of them is stated.
using OneOf = std::vector<const char*>;

// All calls throw JsonError for a value that a field cannot have; it may be null if the record has an optional value.
class Fields {
 public:
  // Both must outlive this. With a `schema` nothing is read: each field is described in it, by JSON Schema's keywords.
  explicit Fields(const Json& object, Json* schema = nullptr) : object_(object), schema_(schema) {}

  // A field that may be missing: the value is then left as it is. `how` are Limits or OneOf.
  template <typename Value, typename How = Limits>
  void Read(const char* name, Value* value, const How& how = {}) {
    if (schema_) return Describe(name, false, *value, how);
    known_.insert(name);
    if (const Json* stated = object_.find(name)) Take(name, *stated, how, value);
  }
  // A field that must be there.
  template <typename Value, typename How = Limits>
  void Require(const char* name, Value* value, const How& how = {}) {
    if (schema_) return Describe(name, true, *value, how);
    known_.insert(name);
    Take(name, object_.at(name), how, value);
  }
  // Fields that are known, and not read.
  void Skip(std::initializer_list<const char*> names) { known_.insert(names.begin(), names.end()); }
  // Refuses all fields that were not named; they may change what the others mean.
  void Finish() const;

 private:
  template <typename Value, typename How>
  static void Take(const char* name, const Json& stated, const How& how, Value* value) {
    try {
      Parse(stated, how, value);
    } catch (const JsonError& error) {
      throw JsonError(std::string(name) + ": " + error.what());
    }
  }

  static double Number(const Json& json, const Limits& limits);
  static int64_t Integer(const Json& json, const Limits& limits);
  static size_t Place(const Json& json, const OneOf& words);
  static const Json::Array& Items(const Json& json, const Limits& limits);

  static void Parse(const Json& json, const Limits&, Json* value) { *value = json; }
  static void Parse(const Json& json, const Limits&, std::string* value) { *value = json.text(); }
  static void Parse(const Json& json, const Limits&, bool* value) { *value = json.truth(); }
  template <typename Value, typename How>
  static void Parse(const Json& json, const How& how, std::optional<Value>* value) {
    if (!json.is_null()) Parse(json, how, &value->emplace());
  }
  template <typename Value, typename How>
  static void Parse(const Json& json, const How& how, std::vector<Value>* values) {
    values->clear();
    for (const Json& each : Items(json, how)) Parse(each, how, &values->emplace_back());
  }
  template <typename Value, typename How>
  static void Parse(const Json& json, const How& how, std::pair<Value, Value>* values) {
    if (json.array().size() != 2) throw JsonError("it is not a pair");
    Parse(json.array()[0], how, &values->first);
    Parse(json.array()[1], how, &values->second);
  }
  // Words, numbers, and records, whose fields a function `ReadFields` reads.
  template <typename Value, typename How>
  static void Parse(const Json& json, const How& how, Value* value) {
    if constexpr (std::is_same_v<How, OneOf>) {
      *value = static_cast<Value>(Place(json, how));
    } else if constexpr (std::is_integral_v<Value>) {
      *value = static_cast<Value>(Integer(json, how));
    } else if constexpr (std::is_floating_point_v<Value>) {
      *value = static_cast<Value>(Number(json, how));
    } else {
      Fields fields(json);
      ReadFields(fields, value);
      fields.Finish();
    }
  }

  template <typename Value, typename How>
  void Describe(const char* name, bool required, const Value& value, const How& how) {
    Json field = Described(how);
    field.Set("required", required);
    Json standard = Default(value, how, &field);
    schema_->Set(name, field.Set("default", std::move(standard)));
  }
  static Json Described(const Limits& limits);
  static Json Described(const OneOf& words);

  // The value of a field before it is read. Of records it is null, and the field gets a description of theirs.
  template <typename Value, typename How>
  static Json Default(const Value& value, const How& how, Json* field) {
    if constexpr (std::is_same_v<How, OneOf>) {
      return Json(how[static_cast<size_t>(value)]);
    } else if constexpr (std::is_same_v<Value, bool> || std::is_same_v<Value, std::string>) {
      return Json(value);
    } else if constexpr (std::is_arithmetic_v<Value>) {
      return Json(static_cast<double>(value));
    } else if constexpr (std::is_same_v<Value, Json>) {
      return value;
    } else {
      const Json nothing = Json::NewObject();
      Json schema = Json::NewObject();
      Fields fields(nothing, &schema);
      Value record = value;
      ReadFields(fields, &record);
      field->Set("fields", std::move(schema));
      return Json();
    }
  }
  template <typename Value, typename How>
  static Json Default(const std::optional<Value>& value, const How& how, Json* field) {
    const Json standard = Default(value.value_or(Value{}), how, field);
    return value ? standard : Json();
  }
  template <typename Value>
  static Json Default(const std::pair<Value, Value>& values, const Limits& limits, Json* field) {
    return Json(Json::Array{Default(values.first, limits, field), Default(values.second, limits, field)});
  }
  template <typename Value>
  static Json Default(const std::vector<Value>& values, const Limits& limits, Json* field) {
    if (Default(Value{}, limits, field).is_null()) return Json();
    Json all{Json::Array{}};
    for (const Value& each : values) all.Add(Default(each, limits, field));
    return all;
  }

  const Json& object_;
  Json* schema_;
  std::set<std::string> known_;
};

}  // namespace agent
