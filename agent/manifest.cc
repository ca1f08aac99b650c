#include "manifest.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "failure.h"

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

bool IsSmall(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }
bool IsAny(char c) { return IsSmall(c) || (c >= 'A' && c <= 'Z'); }

// Letters and digits, of which one comes first, dots, dashes and underscores.
bool IsPlain(std::string_view name, bool (*is_letter)(char)) {
  return !name.empty() && name.size() <= kMaximumName && is_letter(name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return is_letter(c) || c == '.' || c == '_' || c == '-'; });
}

Steps ReadSteps(const Json& json, const ElementType& type) {
  if (type.kind == 'f' || type.kind == 'b' || type.bytes > 2 || (type.kind == 'u' && type.bytes > 1)) {
    throw JsonError(std::string("a quantised tensor is of int8, uint8 or int16, not of ") + type.name);
  }
  const float scale = static_cast<float>(json.Of({"scale", "zero_point"}).at("scale").number());
  if (!(scale > 0) || !std::isfinite(scale)) throw JsonError("a scale is above zero");
  const int64_t zero_point = json.at("zero_point").integer();
  const int64_t values = int64_t{1} << (8 * type.bytes);
  const int64_t least = type.kind == 'u' ? 0 : -values / 2;
  if (zero_point < least || zero_point >= least + values)
    throw JsonError(std::string("a zero point is not of type ") + type.name);
  return {scale, static_cast<int>(zero_point)};
}

TensorSpec Tensor(const Json& json) {
  TensorSpec spec{json.Of({"name", "shape", "dtype", "below", "steps"}).at("name").text(), {}, {}, 0, {}};
  const std::string& dtype = json.at("dtype").text();
  const auto* type = std::find_if(std::begin(kElementTypes), std::end(kElementTypes),
                                  [&](const ElementType& each) { return each.name == dtype; });
  if (type == std::end(kElementTypes)) throw JsonError("unknown dtype '" + dtype + "'");
  spec.type = *type;
  int64_t bytes = type->bytes;
  for (const Json& size : json.at("shape").array()) {
    spec.shape.push_back(size.integer());
    if (spec.shape.back() < 0 || spec.shape.back() > kMaximumTensor) throw JsonError("an impossible shape");
    if (__builtin_mul_overflow(bytes, spec.shape.back(), &bytes) || bytes > kMaximumTensor) {
      throw JsonError("'" + spec.name + "' is larger than 1 GiB");
    }
  }
  spec.bytes = static_cast<size_t>(bytes);
  if (const Json* steps = json.find("steps"); steps && !steps->is_null()) spec.steps = ReadSteps(*steps, spec.type);
  return spec;
}

template <typename Convert>
auto Each(const Json& json, const Convert& convert) {
  std::vector<std::decay_t<decltype(convert(json))>> all;
  for (const Json& each : json.array()) all.push_back(convert(each));
  return all;
}

std::vector<std::string> Names(const Json& json) {
  return Each(json, [](const Json& name) { return name.text(); });
}

Member File(const Json::Member& member) {
  if (!IsMemberName(member.name)) throw JsonError("'" + member.name + "' is not a file name in a package");
  Member file{member.name, 0, member.value.Of({"size", "sha256"}).at("sha256").text()};
  const int64_t size = member.value.at("size").integer();
  if (size < 0) throw JsonError("a file of negative size");
  file.size = static_cast<uint64_t>(size);
  return file;
}

double Tolerance(const Json& json) {
  const double tolerance = json.number();
  if (!(tolerance >= 0)) throw JsonError("a tolerance below zero");
  return tolerance;
}

Case TestCase(const Json& json) {
  json.Of({"name", "inputs", "outputs", "usual", "relative", "absolute", "spread"});
  return {json.at("name").text(), Names(json.at("inputs")), Names(json.at("outputs")),
          Each(json.at("relative"), Tolerance), Tolerance(json.at("absolute"))};
}

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

Entry EntryPoint(const Json& json, const std::string& function) {
  const Json& selftest = json.at("selftest").Of({"cases", "reference", "spread_to"});
  const Json* tail = json.find("tail");
  if (tail && !tail->is_null()) tail->Of({"file", "outputs"});
  Entry entry{function,
              Each(json.at("inputs"), Tensor),
              Each(json.at("outputs"), Tensor),
              {Each(selftest.at("cases"), TestCase), selftest.at("reference").text()},
              tail && !tail->is_null()};
  if (entry.selftest.cases.empty()) throw JsonError("the self-test has no case");
  return entry;
}

void CheckSize(const Manifest& manifest, const TensorSpec& spec, const std::string& name) {
  if (manifest.File(name).size != spec.bytes) throw JsonError(name + " is not of the size of '" + spec.name + "'");
}

void CheckSizes(const Manifest& manifest, const std::vector<TensorSpec>& specs, const std::vector<std::string>& names) {
  if (specs.size() != names.size()) throw JsonError("the self-test has another number of tensors than the network");
  for (size_t i = 0; i < specs.size(); ++i) CheckSize(manifest, specs[i], names[i]);
}

Manifest Read(const Json& json) {
  const int64_t format = json.at("format").integer();
  if (format != kManifestFormat) {
    throw JsonError("another version of edgedeploy wrote it: this agent reads format " +
                    std::to_string(kManifestFormat) + ", not " + std::to_string(format));
  }
  json.Of({"format", "model", "model_sha256", "weights", "board", "build_key", "target", "opencl_device", "threads",
           "versions", "linker", "tuning_records", "disabled_passes", "set_inputs", "inputs", "outputs", "tail", "further",
           "heads", "metadata", "quantisation", "usage", "abi", "memory", "selftest", "checked", "transformed", "files"});
  Manifest manifest;
  manifest.model = json.at("model").text();
  if (!IsModelName(manifest.model)) throw JsonError("'" + manifest.model + "' is not a model name");
  manifest.board = json.at("board").text();
  const int64_t threads = json.at("threads").integer();
  if (threads < 1 || threads > std::numeric_limits<int>::max()) throw JsonError("an impossible number of threads");
  manifest.threads = static_cast<int>(threads);
  const Json* weights = json.find("weights");
  manifest.weights = weights ? weights->text() : "file";
  if (manifest.weights != "file" && manifest.weights != "random") {
    throw JsonError("weights are from a file or random, not '" + manifest.weights + "'");
  }
  const Json& abi = json.at("abi").Of({"elf_class", "machine", "float_abi", "glibc", "libraries", "cpu", "features"});
  manifest.machine = abi.at("machine").text();
  if (!abi.at("glibc").is_null()) manifest.glibc = abi.at("glibc").text();
  const Json* device = json.find("opencl_device");
  if (device && !device->is_null()) manifest.opencl_device = device->text();
  manifest.entries.push_back(EntryPoint(json, "main"));
  if (const Json* further = json.find("further")) {
    for (const Json& each : further->array()) {
      each.Of({"function", "inputs", "outputs", "tail", "selftest"});
      manifest.entries.push_back(EntryPoint(each, each.at("function").text()));
    }
  }
  if (const Json* transformed = json.find("transformed")) manifest.transformed = Each(*transformed, Tensor);
  if (const Json* usage = json.find("usage"); usage && !usage->is_null()) manifest.usage = ReadUsage(*usage);
  if (const Json* heads = json.find("heads")) manifest.heads = Each(*heads, ReadHead);
  if (const Json* metadata = json.find("metadata")) {
    for (const Json::Member& member : metadata->object())
      manifest.metadata.emplace_back(member.name, member.value.text());
  }
  for (const Json::Member& member : json.at("files").object()) manifest.files.push_back(File(member));
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
  Json json = Json::NewObject();
  json.Set("name", name).Set("dtype", type.name);
  json.Set("shape", Json(Json::Array(shape.begin(), shape.end()))).Set("bytes", Json::Size(bytes));
  return json;
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
