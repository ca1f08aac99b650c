#include "manifest.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "failure.h"
#include "fields.h"

namespace agent {
namespace {

constexpr ElementType kElementTypes[] = {
    {"float32", 'f', 4}, {"float64", 'f', 8}, {"float16", 'f', 2}, {"int8", 'i', 1},
    {"int16", 'i', 2},   {"int32", 'i', 4},   {"int64", 'i', 8},   {"uint8", 'u', 1},
    {"uint16", 'u', 2},  {"uint32", 'u', 4},  {"uint64", 'u', 8},  {"bool", 'b', 1},
};

// No board has memory for a larger tensor, and its size must not overflow where size_t has 32 bits.
constexpr int64_t kMaximumTensor = int64_t{1} << 30;

// Of a model, and of a file.
constexpr size_t kMaximumName = 100;

constexpr int64_t kMaximumFile = int64_t{1} << 30;
// No board has more processors.
constexpr int64_t kMostThreads = 1 << 16;

bool IsSmall(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }
bool IsAny(char c) { return IsSmall(c) || (c >= 'A' && c <= 'Z'); }

// Letters and digits, of which one comes first, dots, dashes and underscores.
bool IsPlain(std::string_view name, bool (*is_letter)(char)) {
  return !name.empty() && name.size() <= kMaximumName && is_letter(name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return is_letter(c) || c == '.' || c == '_' || c == '-'; });
}

void CheckSteps(const Steps& steps, const ElementType& type) {
  if (type.kind == 'f' || type.kind == 'b' || type.bytes > 2 || (type.kind == 'u' && type.bytes > 1)) {
    throw JsonError(std::string("a quantised tensor is of int8, uint8 or int16, not of ") + type.name);
  }
  const int64_t values = int64_t{1} << (8 * type.bytes);
  const int64_t least = type.kind == 'u' ? 0 : -values / 2;
  if (steps.zero_point < least || steps.zero_point >= least + values) {
    throw JsonError(std::string("a zero point is not of type ") + type.name);
  }
}

}  // namespace

void ReadFields(Fields& fields, Steps* steps) {
  double scale = 0;
  fields.Require("scale", &scale);
  fields.Require("zero_point", &steps->zero_point);
  steps->scale = static_cast<float>(scale);
  if (!(steps->scale > 0) || !std::isfinite(steps->scale)) throw JsonError("a scale is above zero");
}

void ReadFields(Fields& fields, TensorSpec* spec) {
  std::string dtype;
  fields.Skip({"below"});
  fields.Require("name", &spec->name);
  fields.Require("shape", &spec->shape, Limits{0, kMaximumTensor});
  fields.Require("dtype", &dtype);
  fields.Read("steps", &spec->steps);
  const auto* type = std::find_if(std::begin(kElementTypes), std::end(kElementTypes),
                                  [&](const ElementType& each) { return each.name == dtype; });
  if (type == std::end(kElementTypes)) throw JsonError("unknown dtype '" + dtype + "'");
  spec->type = *type;
  int64_t bytes = type->bytes;
  for (const int64_t size : spec->shape) {
    bytes *= size;
    if (bytes > kMaximumTensor) throw JsonError("'" + spec->name + "' is larger than 1 GiB");
  }
  spec->bytes = static_cast<size_t>(bytes);
  if (spec->steps) CheckSteps(*spec->steps, spec->type);
}

void ReadFields(Fields& fields, Member* file) {
  fields.Require("size", &file->size, Limits{0, kMaximumFile});
  fields.Require("sha256", &file->sha256);
}

void ReadFields(Fields& fields, Case* test) {
  constexpr Limits kTolerance{0};
  fields.Skip({"usual", "spread"});
  fields.Require("name", &test->name);
  fields.Require("inputs", &test->inputs);
  fields.Require("outputs", &test->outputs);
  fields.Require("relative", &test->relative, kTolerance);
  fields.Require("absolute", &test->absolute, kTolerance);
  fields.Read("rms", &test->rms);
  fields.Read("rows", &test->rows);
}

void ReadFields(Fields& fields, SelfTest* test) {
  fields.Skip({"spread_to"});
  fields.Require("cases", &test->cases, OneOrMore());
  fields.Require("reference", &test->reference);
}

// What is not compiled, and not read here.
struct Tail {};
void ReadFields(Fields& fields, Tail*) { fields.Skip({"file", "outputs"}); }

// All but the function's name.
void ReadNetwork(Fields& fields, Entry* entry) {
  std::optional<Tail> tail;
  fields.Require("inputs", &entry->inputs);
  fields.Require("outputs", &entry->outputs);
  fields.Read("tail", &tail);
  fields.Require("selftest", &entry->selftest);
  entry->has_tail = tail.has_value();
}

void ReadFields(Fields& fields, Entry* entry) {
  fields.Require("function", &entry->function);
  ReadNetwork(fields, entry);
}

void ReadFields(Fields& fields, Abi* abi) {
  fields.Skip({"elf_class", "float_abi", "libraries", "cpu", "features"});
  fields.Require("machine", &abi->machine);
  fields.Require("glibc", &abi->glibc);
}

void ReadFields(Fields& fields, ImageInput* input) {
  fields.Skip({"name", "kind"});
  fields.Read("layout", &input->layout);
  fields.Read("colour", &input->colour);
  fields.Read("mean", &input->mean);
  fields.Read("scale", &input->scale);
  const size_t channels = input->colour == "GRAY" ? 1 : 3;
  if (input->mean.size() != channels || input->scale.size() != channels) {
    throw JsonError("mean and scale need " + std::to_string(channels) + " values each");
  }
  fields.Require("shape", &input->shape, kCount);
}

void ReadFields(Fields& fields, CameraFormat* camera) {
  fields.Require("width", &camera->width, Limits{1, kLongestSide});
  fields.Require("height", &camera->height, Limits{1, kLongestSide});
  fields.Require("pixels", &camera->pixels);
}

void ReadFields(Fields& fields, Usage* usage) {
  Json fit;
  fields.Require("demo", &usage->demo);
  fields.Read("stage", &usage->stage, kCount);
  fields.Require("input", &usage->input);
  fields.Require("fit", &fit);
  fields.Require("decoder", &usage->decoder);
  fields.Require("log", &usage->log);
  fields.Read("outputs", &usage->outputs);
  fields.Read("labels", &usage->labels);
  fields.Read("camera", &usage->camera);
  usage->fit = fit.is_object() ? fit.at("kind").text() : fit.text();
  usage->decoder.at("kind").text();  // there must be one
}

void ReadFields(Fields& fields, Head* head) {
  fields.Require("output", &head->output);
  fields.Read("kind", &head->region, OneOf{"yolo", "region"});
  fields.Require("anchors", &head->anchors, OneOrMore(kPositive));
  fields.Read("classes", &head->classes, kCount);
  fields.Read("scale_x_y", &head->scale_x_y, kPositive);
}

namespace {

// The files lie in one folder, beside the manifest and the agent: no name may be taken, or be that of a folder too.
void CheckNames(const Manifest& manifest) {
  std::set<std::string> names{kManifestName, kAgentName};
  for (const Member& file : manifest.files) {
    if (!names.insert(file.name).second) throw JsonError("there can be no file '" + file.name + "' beside the others");
  }
  for (const Member& file : manifest.files) {
    if (const size_t slash = file.name.find('/');
        slash != std::string::npos && names.count(file.name.substr(0, slash))) {
      throw JsonError("there can be no file '" + file.name + "' beside the others");
    }
  }
}

void CheckSize(const Manifest& manifest, const TensorSpec& spec, const std::string& name) {
  if (manifest.File(name).size != spec.bytes) throw JsonError(name + " is not of the size of '" + spec.name + "'");
}

void CheckSizes(const Manifest& manifest, const std::vector<TensorSpec>& specs, const std::vector<std::string>& names) {
  if (specs.size() != names.size()) throw JsonError("the self-test has another number of tensors than the network");
  for (size_t i = 0; i < specs.size(); ++i) CheckSize(manifest, specs[i], names[i]);
}

Manifest Read(const Json& json) {
  Fields fields(json);
  int64_t format = 0;
  fields.Require("format", &format);
  if (format != kManifestFormat) {
    throw JsonError("another version of edgedeploy wrote it: this agent reads format " +
                    std::to_string(kManifestFormat) + ", not " + std::to_string(format));
  }
  fields.Skip({"model_sha256", "build_key", "target", "versions", "linker", "tuning_records", "disabled_passes",
               "set_inputs", "quantisation", "half", "memory", "checked"});
  Manifest manifest;
  Entry first{"main", {}, {}, {}, false};
  std::vector<Entry> further;
  Json metadata = Json::NewObject();
  Json files;
  fields.Require("model", &manifest.model);
  fields.Require("board", &manifest.board);
  fields.Require("threads", &manifest.threads, Limits{1, kMostThreads});
  fields.Read("weights", &manifest.weights);
  fields.Require("abi", &manifest.abi);
  fields.Read("opencl_device", &manifest.opencl_device);
  ReadNetwork(fields, &first);
  fields.Read("further", &further);
  fields.Read("transformed", &manifest.transformed);
  fields.Read("usage", &manifest.usage);
  fields.Read("heads", &manifest.heads);
  fields.Read("metadata", &metadata);
  fields.Require("files", &files);
  fields.Finish();
  manifest.entries.push_back(std::move(first));
  manifest.entries.insert(manifest.entries.end(), further.begin(), further.end());
  for (const auto& [name, value] : metadata.object()) manifest.metadata.emplace_back(name, value.text());
  if (!IsModelName(manifest.model)) throw JsonError("'" + manifest.model + "' is not a model name");
  if (manifest.weights != "file" && manifest.weights != "random") {
    throw JsonError("weights are from a file or random, not '" + manifest.weights + "'");
  }
  for (const auto& [name, value] : files.object()) {
    if (!IsMemberName(name)) throw JsonError("'" + name + "' is not a file name in a package");
    manifest.files.push_back({name, 0, ""});
    Fields described(value);
    ReadFields(described, &manifest.files.back());
    described.Finish();
  }
  CheckNames(manifest);
  manifest.File(kLibraryName);
  for (const TensorSpec& spec : manifest.transformed) CheckSize(manifest, spec, spec.name);
  for (const Entry& entry : manifest.entries) {
    for (const Case& each : entry.selftest.cases) {
      CheckSizes(manifest, entry.inputs, each.inputs);
      CheckSizes(manifest, entry.outputs, each.outputs);
      if (each.relative.size() != each.outputs.size()) throw JsonError("the self-test lacks an output's tolerance");
    }
  }
  return manifest;
}

}  // namespace

Json TensorSpec::Describe() const {
  const Json sizes(Json::Array(shape.begin(), shape.end()));
  return Json::NewObject({{"name", name}, {"dtype", type.name}, {"shape", sizes}, {"bytes", Json::Size(bytes)}});
}

std::string Shown(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text.empty() ? "a scalar" : text;
}

const Member& Manifest::File(const std::string& name) const {
  for (const Member& file : files) {
    if (file.name == name) return file;
  }
  throw Failure(Code::kPackage, "the manifest lists no file '" + name + "'");
}

Manifest ParseManifest(std::string_view text) {
  try {
    return Read(ParseJson(text));
  } catch (const JsonError& error) {
    throw Failure(Code::kPackage, std::string(kManifestName) + " is not sound", error.what());
  }
}

bool IsModelName(std::string_view name) { return IsPlain(name, IsAny); }

bool IsMemberName(std::string_view name) {
  const size_t slash = name.find('/');
  if (slash == std::string_view::npos) return IsPlain(name, IsSmall);
  return name.size() <= kMaximumName && IsPlain(name.substr(0, slash), IsSmall) &&
         IsPlain(name.substr(slash + 1), IsSmall);
}

}  // namespace agent
