// `agent run`: inputs from files, times and statistics, outputs to files.

#include <algorithm>
#include <utility>

#include "arguments.h"
#include "commands.h"
#include "elements.h"
#include "machine.h"
#include "model.h"

namespace agent {
namespace {

// Every element 1, in its type.
void FillWithOnes(const TensorSpec& spec, void* data) {
  WithElement(spec.type, [&](auto one) {
    using Element = decltype(one);
    std::fill_n(static_cast<Element*>(data), spec.bytes / sizeof one, static_cast<Element>(1));
  });
}

// The index of the input that NAME=FILE means, and the file: names may hold '=', so the longest that fits counts.
std::pair<size_t, std::string> ParseInput(const std::string& option, const std::vector<TensorSpec>& inputs) {
  size_t found = inputs.size();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool fits = option.rfind(inputs[i].name + "=", 0) == 0;
    if (fits && (found == inputs.size() || inputs[i].name.size() > inputs[found].name.size())) found = i;
  }
  if (found == inputs.size()) {
    std::string names;
    for (const TensorSpec& spec : inputs) names += (names.empty() ? "" : ", ") + spec.name;
    throw Failure(Code::kInput, "--input " + option + " names no input", "the network's inputs: " + names);
  }
  return {found, option.substr(inputs[found].name.size() + 1)};
}

void SetInputs(const Arguments& arguments, const Package& package, const Entry& entry, Model* model) {
  const std::string fill = arguments.Text("fill");
  std::vector<bool> given(model->inputs().size(), !fill.empty());
  if (fill == "selftest") {
    model->SetRecordedInputs(package, entry.selftest.cases.front());
  } else if (fill == "ones") {
    for (size_t i = 0; i < given.size(); ++i) FillWithOnes(model->inputs()[i], model->Input(i));
  }  // inputs begin as zeros
  for (const std::string& option : arguments.All("input")) {
    const auto [index, file] = ParseInput(option, model->inputs());
    ReadFile(file, model->Input(index), model->inputs()[index].bytes, Code::kInput);
    given[index] = true;
  }
  for (size_t i = 0; i < given.size(); ++i) {
    if (!given[i]) throw Failure(Code::kInput, "missing input " + model->inputs()[i].name, "give --input or --fill");
  }
}

Json Outputs(const Model& model, const std::string& folder) {
  if (!folder.empty()) MakeFolder(folder);
  Json outputs{Json::Array{}};
  for (size_t i = 0; i < model.outputs().size(); ++i) {
    Json output = model.outputs()[i].Describe();
    if (!folder.empty()) {
      const std::string path = folder + "/output-" + std::to_string(i) + ".bin";
      WriteFile(path, model.Output(i), model.outputs()[i].bytes);
      output.Set("file", path);
    }
    outputs.Add(std::move(output));
  }
  return outputs;
}

}  // namespace

Code RunCommand(const Words& words) {
  constexpr int kMost = 1'000'000;
  const Arguments arguments(words, {"input", "fill", "output-dir", "repeat", "number", "warmup", "threads", "entry"});
  const int repeat = arguments.Integer("repeat", 1, 0, kMost);
  const int number = arguments.Integer("number", 1, 1, kMost);
  const int warmup = arguments.Integer("warmup", 1, 0, kMost);
  const int asked = arguments.Integer("threads", 0, 1, kMost);
  const std::string fill = arguments.Text("fill");
  if (!fill.empty() && fill != "zeros" && fill != "ones" && fill != "selftest") {
    throw Failure(Code::kUsage, "--fill must be zeros, ones or selftest");
  }
  const Package package(arguments.Only("package"));
  const std::vector<Entry>& entries = package.manifest().entries;
  const auto place = static_cast<size_t>(arguments.Integer("entry", 0, 0, static_cast<int>(entries.size()) - 1));
  const int threads = ChooseThreads(asked, package.manifest().threads);
  const double before_load_ms = MillisecondsSinceStart();
  Model model(package, threads);
  model.Enter(place);
  const double load_ms = MillisecondsSinceStart() - before_load_ms;
  SetInputs(arguments, package, entries[place], &model);

  // The first inference warms up; if none is asked for, it is the first that is measured.
  const double first_ms = model.TimedRun();
  const double start_ms = MillisecondsSinceStart() - first_ms;
  std::vector<double> runs_ms;
  if (warmup > 0 || number > 1 || repeat == 0) {
    runs_ms = Measure(&model, repeat, number, warmup > 0 ? warmup - 1 : 0);
  } else {
    runs_ms = Measure(&model, repeat - 1, number, 0);
    runs_ms.insert(runs_ms.begin(), first_ms);
  }
  model.Run();

  const Manifest& manifest = package.manifest();
  Json result = Json::NewObject({{"model", manifest.model}, {"board", manifest.board}, {"threads", threads}});
  result.Set("start_ms", start_ms).Set("load_ms", load_ms).Set("first_ms", first_ms);
  AddStatistics(runs_ms, &result);
  result.Set("memory", ProcessMemory());
  result.Set("outputs", Outputs(model, arguments.Text("output-dir")));
  Print(result);
  return Code::kDone;
}

}  // namespace agent
