// A network's outputs as decoders read them: real numbers, by name.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "failure.h"
#include "manifest.h"

namespace agent {

// For a network whose outputs another decoder may read, but not this one.
Failure NotOfThisKind(const std::string& why);

// One row of values for each place.
struct Table {
  const float* values;
  int64_t rows;
  int64_t columns;
  const float* Row(int64_t row) const { return values + row * columns; }
};

// Channels x height x width.
struct Planes {
  const float* values;
  int64_t channels;
  int64_t rows;
  int64_t columns;
  int64_t area() const { return rows * columns; }
};

// float32, of a tensor in any type.
std::vector<float> RealNumbers(const TensorSpec& spec, const void* memory);

class Outputs {
 public:
  struct Output {
    std::string name;
    std::vector<int64_t> shape;
    std::vector<float> values;
    bool whole = false;  // whether they are integers that stand for themselves

    // For a network whose output has another shape than is wanted.
    Failure IsNot(const std::string& wanted) const;
  };

  explicit Outputs(std::vector<Output> all) : all_(std::move(all)) {}

  const std::vector<Output>& all() const { return all_; }
  // Failure(kInput) for these if there is no such output.
  const Output& At(const std::string& name) const;
  // That of a name, or the first one.
  const Output& FirstOr(const std::optional<std::string>& name) const;
  // Without its batch of one; as many rows, columns or channels as stated, or any number if that is negative.
  Table TableOf(const std::string& name, int64_t rows = -1, int64_t columns = -1) const;
  Planes PlanesOf(const std::string& name, int64_t channels = -1) const;

 private:
  std::vector<Output> all_;
};

}  // namespace agent
