#include "vision/parameters.h"

#include <cmath>

namespace agent {

const Json* Parameters::Find(const char* name) {
  known_.insert(name);
  const Json* found = object_.find(name);
  return found && !found->is_null() ? found : nullptr;
}

const Json& Parameters::At(const char* name) {
  if (const Json* found = Find(name)) return *found;
  throw JsonError("there is no field '" + std::string(name) + "'");
}

double Parameters::Fraction(const char* name, double otherwise) {
  const Json* found = Find(name);
  const double value = found ? found->number() : otherwise;
  if (!(value >= 0 && value <= 1)) throw JsonError(std::string(name) + " is not from 0 to 1");
  return value;
}

double Parameters::Side(const char* name, double otherwise) {
  const Json* found = Find(name);
  return found ? SideOf(*found) : otherwise;
}

int64_t Parameters::Count(const char* name, int64_t otherwise, int64_t most) {
  const Json* found = Find(name);
  return found ? CountOf(*found, most) : otherwise;
}

bool Parameters::Truth(const char* name, bool otherwise) {
  const Json* found = Find(name);
  return found ? found->truth() : otherwise;
}

std::string Parameters::Text(const char* name, const char* otherwise) {
  const Json* found = Find(name);
  return found ? found->text() : otherwise;
}

size_t Parameters::Choice(const char* name, std::initializer_list<const char*> words, size_t otherwise) {
  const Json* found = Find(name);
  if (!found) return otherwise;
  size_t place = 0;
  for (const char* word : words) {
    if (found->text() == word) return place;
    ++place;
  }
  throw JsonError(std::string(name) + " cannot be '" + found->text() + "'");
}

std::vector<std::string> Parameters::Texts(const char* name) {
  std::vector<std::string> texts;
  if (const Json* found = Find(name)) {
    for (const Json& each : found->array()) texts.push_back(each.text());
  }
  return texts;
}

std::vector<int64_t> Parameters::Counts(const char* name, std::vector<int64_t> otherwise, int64_t most) {
  const Json* found = Find(name);
  if (!found) return otherwise;
  std::vector<int64_t> counts;
  for (const Json& each : found->array()) counts.push_back(CountOf(each, most));
  if (counts.empty() || counts.size() > kMaximumLevels) {
    throw JsonError(std::string(name) + " is empty, or has more than " + std::to_string(kMaximumLevels) + " numbers");
  }
  return counts;
}

void Parameters::Finish() const {
  for (const Json::Member& member : object_.object()) {
    if (!known_.count(member.name)) throw JsonError("the field '" + member.name + "' is not known");
  }
}

double SideOf(const Json& json) {
  const double side = json.number();
  if (!(side > 0) || !std::isfinite(side)) throw JsonError("a side that is not above zero");
  return side;
}

int64_t CountOf(const Json& json, int64_t most) {
  const int64_t count = json.integer();
  if (count < 1 || count > most) throw JsonError(std::to_string(count) + " is not from 1 to " + std::to_string(most));
  return count;
}

std::pair<double, double> SidesOf(const Json& json) {
  if (json.array().size() != 2) throw JsonError("two sides are a width and a height");
  return {SideOf(json.array()[0]), SideOf(json.array()[1])};
}

}  // namespace agent
