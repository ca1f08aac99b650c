// Which pixels of an image belong to a result: edgedeploy/vision/decoders/maps.py and results.Mask in C++.
#pragma once

#include <optional>
#include <vector>

#include "vision/frame.h"
#include "vision/results.h"

namespace agent {

// A map over a network's input, rows x columns of any size, as one over the image's pixels. Failure(kInput) if it has
// no cells. With `nearest` a pixel gets the nearest value, not one between its neighbours: for numbers of classes.
std::vector<float> OnImage(std::vector<float> values, Size size, const Frame& frame, bool nearest = false);

// The pixels inside of a box whose value is above 0; nothing if there are none.
std::optional<Mask> MaskIn(const Box& box, const std::vector<float>& values, Size image);

}  // namespace agent
