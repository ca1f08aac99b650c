// The part of a package's manifest.json that the agent needs. edgedeploy/package/manifest.py and usage.py and
// edgedeploy/model/heads.py describe it all, and have these rules and more: the agent accepts all that they accept.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "json.h"

namespace agent {

// An element type as numpy names it.
struct ElementType {
  const char* name;
  char kind;  // 'f' floating point, 'i' signed, 'u' unsigned, 'b' truth
  int bytes;
};

// What the integers of a quantised tensor stand for: `(integer - zero_point) * scale`.
struct Steps {
  float scale;
  int zero_point;
};

struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;
  ElementType type;
  size_t bytes;
  std::optional<Steps> steps;

  // {"name": ..., "dtype": ..., "shape": [...], "bytes": ...}
  Json Describe() const;
};

// A shape in words, as 1x3x8x8.
std::string Shown(const std::vector<int64_t>& shape);

struct Member {
  std::string name;
  uint64_t size;
  std::string sha256;
};

// One inference of the self-test: members that hold its inputs and expected outputs, and how far these may be off.
struct Case {
  std::string name;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::vector<double> relative;  // of each output
  double absolute = 0;
  std::vector<std::string> rms;   // the outputs that are compared by root mean squares
  std::vector<std::string> rows;  // and those of which half of the rows must agree with some row
};

struct SelfTest {
  std::vector<Case> cases;  // one at least
  std::string reference;
};

// The network for some shapes of its inputs: a function of the library.
struct Entry {
  std::string function;
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  SelfTest selftest;
  bool has_tail;  // whether what the network gives is made of the outputs by what is not compiled
};

// How an image becomes the network's input: `(level - mean) * scale`, for each channel in the order of `colour`.
struct ImageInput {
  std::vector<int64_t> shape;
  std::string layout = "NCHW";  // or NHWC
  std::string colour = "RGB";   // or BGR or GRAY
  std::vector<double> mean{0, 0, 0};
  std::vector<double> scale{1, 1, 1};
};

// No camera gives frames of a longer side, and no network of images takes one (edgedeploy/package/usage.py).
inline constexpr int64_t kLongestSide = 1 << 14;

// Of a package that takes frames as they are: their size, and the format by its name.
struct CameraFormat {
  int64_t width;
  int64_t height;
  std::string pixels;
};

// Unknown kinds of decoders and fits are not errors.
struct Usage {
  std::string demo;
  int64_t stage = 1;
  ImageInput input;
  // How an image is brought to the input's size: a name, or an object with parameters and a kind.
  std::string fit;
  Json decoder;  // an object with its kind and parameters
  std::string log;
  std::vector<std::string> outputs;  // what the decoder calls them; none: what the network does
  std::vector<std::string> labels;
  std::optional<CameraFormat> camera;  // what it becomes is of the input's shape then
};

// One raw head of YOLO.
struct Head {
  std::string output;
  bool region = false;                             // as in YOLO v2, else as in v3
  std::vector<std::pair<double, double>> anchors;  // width and height in pixels of the network's input
  std::optional<int64_t> classes;
  double scale_x_y = 1;
};
class Fields;
void ReadFields(Fields& fields, Head* head);

// What the network's code needs of a machine.
struct Abi {
  std::string machine;               // ELF's name, such as EM_AARCH64
  std::optional<std::string> glibc;  // the oldest version
};

struct Manifest {
  std::string model;
  std::string board;
  int threads;
  std::string weights = "file";  // "random" if they are seeded random values, so that results mean nothing
  Abi abi;
  std::optional<std::string> opencl_device;  // a part of the name of the device that it runs on; none for the CPU
  std::vector<Entry> entries;                // one at least
  std::vector<TensorSpec> transformed;       // weights that the library transforms, named after the files with them
  std::optional<Usage> usage;                // how images become its input, and its outputs results, if it says that
  std::vector<Head> heads;                   // what the network's file says of its detection heads
  std::vector<std::pair<std::string, std::string>> metadata;  // and of other things
  std::vector<Member> files;

  const Member& File(const std::string& name) const;
};

// The version of the manifest's structure that is read.
inline constexpr int64_t kManifestFormat = 1;
inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kLibraryName = "model.so";
// The program itself, which lies beside them on a board.
inline constexpr const char* kAgentName = "agent";

// Throws Failure(kPackage) for everything that is not a manifest.
Manifest ParseManifest(std::string_view text);

// Whether a model can be called so: [A-Za-z0-9][A-Za-z0-9._-]*, in 100 bytes.
bool IsModelName(std::string_view name);

// Whether a name is plain and relative, of at most one folder: [a-z0-9][a-z0-9._-]*, once or twice, in 100 bytes.
bool IsMemberName(std::string_view name);

}  // namespace agent
