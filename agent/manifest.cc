#include "manifest.h"

#include <algorithm>
#include <limits>

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

bool IsPart(std::string_view part) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !part.empty() && plain(part.front()) &&
         std::all_of(part.begin(), part.end(),
                     [&](char c) { return plain(c) || c == '.' || c == '_' || c == '-'; });
}

TensorSpec Tensor(const Json& json) {
  TensorSpec spec{json.at("name").text(), {}, {}, 0};
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
  return spec;
}

std::vector<TensorSpec> Tensors(const Json& json) {
  std::vector<TensorSpec> specs;
  for (const Json& each : json.array()) specs.push_back(Tensor(each));
  return specs;
}

std::vector<std::string> Names(const Json& json) {
  std::vector<std::string> names;
  for (const Json& each : json.array()) names.push_back(each.text());
  return names;
}

std::vector<double> Numbers(const Json& json) {
  std::vector<double> numbers;
  for (const Json& each : json.array()) numbers.push_back(each.number());
  return numbers;
}

Member File(const Json::Member& member) {
  if (!IsMemberName(member.name)) throw JsonError("'" + member.name + "' is no name of a file in a package");
  Member file{member.name, 0, member.value.at("sha256").text()};
  const int64_t size = member.value.at("size").integer();
  if (size < 0) throw JsonError("a file of negative size");
  file.size = static_cast<uint64_t>(size);
  return file;
}

SelfTest Test(const Json& json) {
  SelfTest test{{}, json.at("reference").text()};
  for (const Json& each : json.at("cases").array()) {
    test.cases.push_back({each.at("name").text(), Names(each.at("inputs")), Names(each.at("outputs")),
                          Numbers(each.at("relative")), each.at("absolute").number()});
  }
  if (test.cases.empty()) throw JsonError("the self-test has no case");
  return test;
}

Manifest Read(const Json& json) {
  const int64_t format = json.at("format").integer();
  if (format != kManifestFormat) {
    throw JsonError("another version of edgedeploy wrote it: this agent reads format " +
                    std::to_string(kManifestFormat) + ", not " + std::to_string(format));
  }
  Manifest manifest;
  manifest.model = json.at("model").text();
  manifest.board = json.at("board").text();
  const int64_t threads = json.at("threads").integer();
  if (threads < 1 || threads > std::numeric_limits<int>::max()) throw JsonError("an impossible number of threads");
  manifest.threads = static_cast<int>(threads);
  const Json& abi = json.at("abi");
  manifest.machine = abi.at("machine").text();
  if (!abi.at("glibc").is_null()) manifest.glibc = abi.at("glibc").text();
  const Json* device = json.find("opencl_device");
  if (device && !device->is_null()) manifest.opencl_device = device->text();
  manifest.inputs = Tensors(json.at("inputs"));
  manifest.outputs = Tensors(json.at("outputs"));
  manifest.selftest = Test(json.at("selftest"));
  for (const Json::Member& member : json.at("files").object()) manifest.files.push_back(File(member));
  manifest.File(kLibraryName);
  for (const Case& each : manifest.selftest.cases) {
    if (each.inputs.size() != manifest.inputs.size() || each.outputs.size() != manifest.outputs.size() ||
        each.relative.size() != manifest.outputs.size()) {
      throw JsonError("the self-test has another number of tensors than the network");
    }
    for (const auto* names : {&each.inputs, &each.outputs}) {
      for (const std::string& name : *names) manifest.File(name);
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

bool IsMemberName(std::string_view name) {
  const size_t slash = name.find('/');
  if (slash == std::string_view::npos) return IsPart(name);
  return IsPart(name.substr(0, slash)) && IsPart(name.substr(slash + 1));
}

}  // namespace agent
