#include "vision/outputs.h"

#include <builtin_fp16.h>

#include <cstring>

namespace agent {
namespace {

template <typename Element, typename Convert>
std::vector<float> Converted(const void* memory, size_t bytes, const Convert& convert) {
  const auto* elements = static_cast<const Element*>(memory);
  std::vector<float> values(bytes / sizeof(Element));
  for (size_t i = 0; i < values.size(); ++i) values[i] = convert(elements[i]);
  return values;
}

template <typename Element>
std::vector<float> Integers(const TensorSpec& spec, const void* memory) {
  if (!spec.steps) {
    return Converted<Element>(memory, spec.bytes, [](Element value) { return static_cast<float>(value); });
  }
  const int zero_point = spec.steps->zero_point;
  const float scale = spec.steps->scale;
  return Converted<Element>(memory, spec.bytes, [=](Element value) {
    return static_cast<float>(static_cast<int64_t>(value) - zero_point) * scale;
  });
}

// Failure unless a shape is a batch of one with these sizes, of which negative ones are any.
void RequireShape(const Outputs::Output& output, const std::vector<int64_t>& wanted, const char* letters) {
  bool fits = output.shape.size() == wanted.size() + 1 && output.shape[0] == 1;
  std::string words = "1";
  for (size_t i = 0; i < wanted.size(); ++i) {
    fits = fits && (wanted[i] < 0 || output.shape[i + 1] == wanted[i]);
    words += "x" + (wanted[i] < 0 ? std::string(1, letters[i]) : std::to_string(wanted[i]));
  }
  if (!fits) throw NotOfThisKind("its output '" + output.name + "' is " + Shown(output.shape) + ", not " + words);
}

}  // namespace

Failure NotOfThisKind(const std::string& why) {
  return {Code::kInput, "the network does not give what its package says that it gives", why};
}

std::vector<float> RealNumbers(const TensorSpec& spec, const void* memory) {
  const std::string type = spec.type.name;
  if (type == "float32") return Converted<float>(memory, spec.bytes, [](float value) { return value; });
  if (type == "float64") {
    return Converted<double>(memory, spec.bytes, [](double value) { return static_cast<float>(value); });
  }
  if (type == "float16") {
    return Converted<uint16_t>(memory, spec.bytes, [](uint16_t value) {
      return __extendXfYf2__<uint16_t, uint16_t, 10, float, uint32_t, 23>(value);
    });
  }
  if (type == "int8") return Integers<int8_t>(spec, memory);
  if (type == "int16") return Integers<int16_t>(spec, memory);
  if (type == "int32") return Integers<int32_t>(spec, memory);
  if (type == "int64") return Integers<int64_t>(spec, memory);
  if (type == "uint16") return Integers<uint16_t>(spec, memory);
  if (type == "uint32") return Integers<uint32_t>(spec, memory);
  if (type == "uint64") return Integers<uint64_t>(spec, memory);
  return Integers<uint8_t>(spec, memory);  // and truth
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

std::string Shown(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text.empty() ? "a scalar" : text;
}

}  // namespace agent
