// `agent selftest`: the recorded inputs through the network, and the outputs compared with the recorded ones.
// `agent verify`: the files of a package compared with what its manifest says.

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>

#include "arguments.h"
#include "commands.h"
#include "elements.h"
#include "machine.h"
#include "model.h"

namespace agent {
namespace {

// The difference of two tensors, and what is allowed: relative * max|expected| + absolute. The difference is infinite
// where one value is not finite and the other is not equal to it; two NaN are equal.
struct Comparison {
  double difference;
  double allowed;
  bool agrees() const { return difference <= allowed; }
  // As a fraction of what is allowed.
  double fraction() const { return difference == 0 ? 0 : difference / allowed; }
};

double Difference(double found, double expected) {
  if (found == expected || (std::isnan(found) && std::isnan(expected))) return 0;
  if (!std::isfinite(found) || !std::isfinite(expected)) return std::numeric_limits<double>::infinity();
  return std::abs(found - expected);
}

// Both point to `spec.bytes` little-endian bytes.
Comparison Compare(const TensorSpec& spec, const void* found, const void* expected, const Case& test, size_t output) {
  const auto named = [&](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), spec.name) != names.end();
  };
  const bool rms = named(test.rms);
  double difference = 0, size = 0, finite = 0;
  WithElement(spec.type, [&](auto zero) {
    using Element = decltype(zero);
    const size_t count = spec.bytes / sizeof zero;
    const auto value = [](const void* values, size_t i) {
      return static_cast<double>(static_cast<const Element*>(values)[i]);
    };
    for (size_t i = 0; i < count; ++i) {
      const double apart = Difference(value(found, i), value(expected, i));
      const double present = std::isfinite(value(expected, i)) ? std::abs(value(expected, i)) : 0;
      difference = rms ? difference + apart * apart : std::max(difference, apart);
      size = rms ? size + present * present : std::max(size, present);
      finite += std::isfinite(value(expected, i));
    }
    const size_t rank = spec.shape.size();
    if (count == 0 || finite < static_cast<double>(count) || !named(test.rows)) return;
    const size_t width = rank > 1 && spec.shape[rank - 2] > 1 ? static_cast<size_t>(spec.shape[rank - 1]) : 1;
    std::vector<double> nearest;  // of each expected row, the largest difference from the found row that is nearest
    for (size_t row = 0; row < count; row += width) {
      nearest.push_back(std::numeric_limits<double>::infinity());
      for (size_t other = 0; other < count; other += width) {
        double apart = 0;
        for (size_t i = 0; i < width && apart < nearest.back(); ++i) {
          apart = std::max(apart, Difference(value(found, other + i), value(expected, row + i)));
        }
        nearest.back() = std::min(nearest.back(), apart);
      }
    }
    const auto median = nearest.begin() + static_cast<std::ptrdiff_t>((nearest.size() - 1) / 2);
    std::nth_element(nearest.begin(), median, nearest.end());
    difference = *median;
  });
  if (rms && finite > 0) {
    difference = std::sqrt(difference / finite);
    size = std::sqrt(size / finite);
  }
  return {difference, test.relative[output] * size + test.absolute};
}

}  // namespace

Code SelfTestCommand(const Words& words) {
  const Arguments arguments(words, {"threads"});
  const int asked = arguments.Integer("threads", 0, 1, 1'000'000);
  const Package package(arguments.Only("package"));
  const Manifest& manifest = package.manifest();
  const int threads = ChooseThreads(asked, manifest.threads);
  Model model(package, threads);

  bool passed = true;
  std::optional<double> first_ms;
  Json outputs{Json::Array{}};
  const auto test = [&](const Entry& entry, const Case& each) {
    model.SetRecordedInputs(package, each);
    const double before_ms = MillisecondsSinceStart();
    model.Run();
    if (!first_ms) first_ms = MillisecondsSinceStart() - before_ms;
    for (size_t i = 0; i < model.outputs().size(); ++i) {
      const TensorSpec& spec = model.outputs()[i];
      const auto expected = std::make_unique<char[]>(spec.bytes);
      package.Read(each.outputs[i], expected.get(), spec.bytes);
      const Comparison compared = Compare(spec, model.Output(i), expected.get(), each, i);
      passed = passed && compared.agrees();
      Json output = Json::NewObject();
      output.Set("case", each.name).Set("name", spec.name).Set("difference", compared.difference);
      output.Set("allowed", compared.allowed).Set("fraction", compared.fraction());
      if (manifest.entries.size() > 1) output.Set("function", entry.function);
      outputs.Add(std::move(output));
    }
  };
  for (size_t i = 0; i < manifest.entries.size(); ++i) {
    model.Enter(i);
    for (const Case& each : manifest.entries[i].selftest.cases) test(manifest.entries[i], each);
  }
  Json result = Json::NewObject();
  result.Set("model", manifest.model).Set("board", manifest.board).Set("threads", threads).Set("passed", passed);
  result.Set("reference", manifest.entries.front().selftest.reference)
      .Set("first_ms", *first_ms)
      .Set("outputs", std::move(outputs));
  Print(result);
  return passed ? Code::kDone : Code::kDifferent;
}

Code VerifyCommand(const Words& words) {
  const Arguments arguments(words, {});
  const Package package(arguments.Only("package"));
  uint64_t bytes = 0;
  for (const Member& member : package.manifest().files) {
    package.Verify(member);
    bytes += member.size;
  }
  Json result = Json::NewObject();
  result.Set("model", package.manifest().model).Set("files", Json::Size(package.manifest().files.size()));
  Print(result.Set("bytes", Json::Size(bytes)));
  return Code::kDone;
}

}  // namespace agent
