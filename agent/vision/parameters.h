// The parameters of a decoder, as a package states them: fields that are missing have the values that Python gives
// them, and such as are not known here are refused, since they may change what the others mean.
#pragma once

#include <initializer_list>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "json.h"

namespace agent {

// All calls throw JsonError for a value that the field cannot have.
class Parameters {
 public:
  // Of an object, which has to outlive this.
  explicit Parameters(const Json& object) : object_(object) {}

  // Null if the field is missing, or null.
  const Json* Find(const char* name);
  const Json& At(const char* name);

  // A number from 0 to 1.
  double Fraction(const char* name, double otherwise);
  // A number above 0.
  double Side(const char* name, double otherwise);
  // A whole number from 1 to `most`.
  int64_t Count(const char* name, int64_t otherwise, int64_t most = int64_t{1} << 31);
  bool Truth(const char* name, bool otherwise);
  std::string Text(const char* name, const char* otherwise);
  // One of some words; which.
  size_t Choice(const char* name, std::initializer_list<const char*> words, size_t otherwise);
  std::vector<std::string> Texts(const char* name);
  // Whole numbers from 1 to `most`, one at least; as many as a network's levels can be.
  std::vector<int64_t> Counts(const char* name, std::vector<int64_t> otherwise, int64_t most);

  // Refuses fields that nothing asked for.
  void Finish() const;

 private:
  const Json& object_;
  std::set<std::string> known_{"kind"};
};

inline constexpr int64_t kMaximumStride = 4096;
// Levels of a network, or shapes of its anchors: what is counted with them does not overflow.
inline constexpr size_t kMaximumLevels = 256;

double SideOf(const Json& json);
int64_t CountOf(const Json& json, int64_t most);
// A list of two sides: a width and a height.
std::pair<double, double> SidesOf(const Json& json);

}  // namespace agent
