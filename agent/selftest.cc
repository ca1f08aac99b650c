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

// Both point to `spec.bytes` little-endian bytes. Compares the largest values, or the root mean squares.
Comparison Compare(const TensorSpec& spec, const void* found, const void* expected, double relative, double absolute,
                   bool rms) {
  double difference = 0, size = 0, finite = 0;
  WithElement(spec.type, [&](auto zero) {
    using Element = decltype(zero);
    for (size_t i = 0; i < spec.bytes / sizeof zero; ++i) {
      const auto wanted = static_cast<double>(static_cast<const Element*>(expected)[i]);
      const auto value = static_cast<double>(static_cast<const Element*>(found)[i]);
      const double apart = Difference(value, wanted);
      const double present = std::isfinite(wanted) ? std::abs(wanted) : 0;
      difference = rms ? difference + apart * apart : std::max(difference, apart);
      size = rms ? size + present * present : std::max(size, present);
      finite += std::isfinite(wanted);
    }
  });
  if (rms && finite > 0) {
    difference = std::sqrt(difference / finite);
    size = std::sqrt(size / finite);
  }
  return {difference, relative * size + absolute};
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
      const bool rms = std::find(each.rms.begin(), each.rms.end(), spec.name) != each.rms.end();
      const Comparison compared = Compare(spec, model.Output(i), expected.get(), each.relative[i], each.absolute, rms);
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
