// How an image lies in a network's input, as edgedeploy/vision/geometry.py has it.
#pragma once

#include <optional>
#include <string>

#include "vision/results.h"

namespace agent {

struct Size {
  int height;
  int width;
};

inline bool operator==(Size a, Size b) { return a.height == b.height && a.width == b.width; }
inline bool operator!=(Size a, Size b) { return !(a == b); }

// How an image of another size is brought to the input's; edgedeploy/vision/preprocess.py describes them.
enum class Fit { kStretch, kPad, kLetterbox, kFill, kCover, kContain, kLine };

// The fit of a name; nothing for one that is not known here. `scaled` is `fill` where the network has one size.
std::optional<Fit> FitOf(const std::string& name);

struct Frame {
  Size image;
  Size network;
  // Pixels of the network per pixel of the image, along x and along y.
  double scale_x;
  double scale_y;
  // Of the image's top left in pixels of the network; negative where a part of it is not seen.
  double offset_x = 0;
  double offset_y = 0;

  // Of the whole image in pixels of the network.
  Size Inner() const;
  // A point in pixels of the network as pixels of the image.
  Point ToImage(Point point) const;
  Box ToImage(const Box& box) const;
};

// How an image of a size lies in an input of another one.
Frame Framed(Size image, Size network, Fit fit);

}  // namespace agent
