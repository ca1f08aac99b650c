// `agent selftest`: the recorded inputs through the network, and the outputs compared with the recorded ones.
// `agent verify`: the files of a package compared with what its manifest says.

#include <memory>
#include <optional>

#include "arguments.h"
#include "commands.h"
#include "comparison.h"
#include "machine.h"
#include "model.h"

namespace agent {

Code SelfTestCommand(const Words& words) {
  const Arguments arguments(words, {"threads"});
  const int asked = arguments.Integer("threads", 0, 1, 1'000'000);
  const Package package(arguments.Only("package"));
  const Manifest& manifest = package.manifest();
  const int threads = ChooseThreads(asked, manifest.threads);
  Model first(package, threads);

  bool passed = true;
  std::optional<double> first_ms;
  Json outputs{Json::Array{}};
  const auto test = [&](Model* model, const Entry& entry, const Case& each) {
    model->SetRecordedInputs(package, each);
    const double before_ms = MillisecondsSinceStart();
    model->Run();
    if (!first_ms) first_ms = MillisecondsSinceStart() - before_ms;
    for (size_t i = 0; i < model->outputs().size(); ++i) {
      const TensorSpec& spec = model->outputs()[i];
      const auto expected = std::make_unique<char[]>(spec.bytes);
      package.Read(each.outputs[i], expected.get(), spec.bytes);
      const Comparison compared = Compare(spec, model->Output(i), expected.get(), each.relative[i], each.absolute);
      passed = passed && compared.agrees();
      Json output = Json::NewObject();
      output.Set("case", each.name).Set("name", spec.name).Set("largest_difference", compared.largest_difference);
      output.Set("allowed", compared.allowed).Set("fraction", compared.fraction());
      if (manifest.entries.size() > 1) output.Set("function", entry.function);
      outputs.Add(std::move(output));
    }
  };
  for (const Entry& entry : manifest.entries) {
    const bool is_first = &entry == &manifest.entries.front();
    const std::unique_ptr<Model> other = is_first ? nullptr : std::make_unique<Model>(first, entry);
    for (const Case& each : entry.selftest.cases) test(is_first ? &first : other.get(), entry, each);
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
