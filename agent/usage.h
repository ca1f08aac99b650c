// What a package says of how its network is used, and what the network's file says of itself:
// edgedeploy/package/usage.py and edgedeploy/model/heads.py describe it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fields.h"

namespace agent {

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

// Unknown kinds of decoders and fits are not errors.
void ReadFields(Fields& fields, Usage* usage);
void ReadFields(Fields& fields, Head* head);

}  // namespace agent
