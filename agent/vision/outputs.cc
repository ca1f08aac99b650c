#include "vision/outputs.h"

#include <type_traits>

#include "elements.h"

namespace agent {
namespace {

// Failure unless a shape is a batch of one with these sizes, of which negative ones are any.
void RequireShape(const Outputs::Output& output, const std::vector<int64_t>& wanted, const char* letters) {
  bool fits = output.shape.size() == wanted.size() + 1 && output.shape[0] == 1;
  std::string words = "1";
  for (size_t i = 0; i < wanted.size(); ++i) {
    fits = fits && (wanted[i] < 0 || output.shape[i + 1] == wanted[i]);
    words += "x" + (wanted[i] < 0 ? std::string(1, letters[i]) : std::to_string(wanted[i]));
  }
  if (!fits) throw output.IsNot(words);
}

}  // namespace

Failure NotOfThisKind(const std::string& why) {
  return {Code::kInput, "the network does not give what its package says that it gives", why};
}

Failure Outputs::Output::IsNot(const std::string& wanted) const {
  return NotOfThisKind("its output '" + name + "' is " + Shown(shape) + ", not " + wanted);
}

std::vector<float> RealNumbers(const TensorSpec& spec, const void* memory) {
  return WithElement(spec.type, [&](auto zero) {
    using Element = decltype(zero);
    const auto* elements = static_cast<const Element*>(memory);
    std::vector<float> values(spec.bytes / sizeof zero);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(elements[i]);
      if constexpr (std::is_integral_v<Element>) {
        const auto steps = spec.steps;
        if (steps) values[i] = static_cast<float>(static_cast<int64_t>(elements[i]) - steps->zero_point) * steps->scale;
      }
    }
    return values;
  });
}

const Outputs::Output& Outputs::At(const std::string& name) const {
  std::string names;
  for (const Output& each : all_) {
    if (each.name == name) return each;
    names += (names.empty() ? "" : ", ") + each.name;
  }
  throw NotOfThisKind("it has no output '" + name + "', only " + names);
}

const Outputs::Output& Outputs::FirstOr(const std::optional<std::string>& name) const {
  if (name) return At(*name);
  if (all_.empty()) throw NotOfThisKind("it has no output");
  return all_.front();
}

Table Outputs::TableOf(const std::string& name, int64_t rows, int64_t columns) const {
  const Output& output = At(name);
  RequireShape(output, {rows, columns}, "NM");
  return {output.values.data(), output.shape[1], output.shape[2]};
}

Planes Outputs::PlanesOf(const std::string& name, int64_t channels) const {
  const Output& output = At(name);
  RequireShape(output, {channels, -1, -1}, "CHW");
  return {output.values.data(), output.shape[1], output.shape[2], output.shape[3]};
}

}  // namespace agent
