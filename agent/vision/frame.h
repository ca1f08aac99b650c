// How an image lies in a network's input, as edgedeploy/camera/geometry.py has it.
#pragma once

#include "vision/results.h"

namespace agent {

struct Size {
  int height;
  int width;
};

struct Frame {
  Size image;
  Size network;
  // Pixels of the network per pixel of the image, along x and along y.
  double scale_x;
  double scale_y;
  // Of the image's top left in pixels of the network; negative where a part of it is not seen.
  double offset_x = 0;
  double offset_y = 0;

  // A point in pixels of the network as pixels of the image.
  Point ToImage(Point point) const;
};

}  // namespace agent
