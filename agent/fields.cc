#include "fields.h"

#include <algorithm>
#include <cmath>

namespace agent {
namespace {

constexpr int64_t kMostOpen = int64_t{1} << 31;

std::string Shown(double value) { return Json(value).Dump(); }

JsonError Outside(double value, const Limits& limits) {
  if (std::isfinite(limits.most)) {
    return JsonError(Shown(value) + " is not from " + Shown(limits.least) + " to " + Shown(limits.most));
  }
  return JsonError(Shown(value) + (limits.above ? " is not above " : " is below ") + Shown(limits.least));
}

}  // namespace

void Fields::Finish() const {
  for (const Json::Member& member : object_.object()) {
    if (!known_.count(member.name)) throw JsonError("the field '" + member.name + "' is not known");
  }
}

double Fields::Number(const Json& json, const Limits& limits) {
  const double value = json.number();
  const bool reaches_least = limits.above ? value > limits.least : value >= limits.least;
  if (!reaches_least || !(value <= limits.most)) throw Outside(value, limits);
  return value;
}

int64_t Fields::Integer(const Json& json, const Limits& limits) {
  const double value = Number(json, limits);
  // Numbers beyond int64 are double, as all others that are not whole.
  const bool is_large = std::fabs(value) >= static_cast<double>(int64_t{1} << 62);
  const int64_t whole = is_large ? (value > 0 ? kMostOpen : -kMostOpen) : json.integer();
  return std::isfinite(limits.most) ? whole : std::min(whole, kMostOpen);
}

size_t Fields::Place(const Json& json, const OneOf& words) {
  const auto found = std::find(words.begin(), words.end(), json.text());
  if (found == words.end()) throw JsonError("it cannot be '" + json.text() + "'");
  return static_cast<size_t>(found - words.begin());
}

const Json::Array& Fields::Items(const Json& json, const Limits& limits) {
  const size_t count = json.array().size();
  if (count < limits.items) throw JsonError("it is empty");
  if (count > limits.most_items) throw JsonError("it has more than " + std::to_string(limits.most_items) + " items");
  return json.array();
}

Json Fields::Described(const Limits& limits) {
  Json field = Json::NewObject();
  if (std::isfinite(limits.least)) field.Set(limits.above ? "exclusiveMinimum" : "minimum", limits.least);
  if (std::isfinite(limits.most)) field.Set("maximum", limits.most);
  if (limits.items > 0) field.Set("minItems", Json::Size(limits.items));
  return field;
}

Json Fields::Described(const OneOf& words) {
  Json field = Json::NewObject();
  return field.Set("enum", Json(Json::Array(words.begin(), words.end())));
}

}  // namespace agent
