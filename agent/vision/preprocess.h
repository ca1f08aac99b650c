// From an image to a network's input: edgedeploy/vision/preprocess.py in C++.
#pragma once

#include "manifest.h"
#include "vision/frame.h"
#include "vision/image.h"

namespace agent {

// An image brought to a network's size, and how it lies there; a line of text may end before. It may borrow the pixels
// of the image.
struct Placed {
  Image pixels;
  Frame frame;
};
Placed Place(const Image& image, Size size, Fit fit);
Placed Place(Image&& image, Size size, Fit fit) = delete;  // its pixels would be gone

// Height and width of the images that an input takes. Failure(kInput) if it takes none of that layout and colour.
Size InputSize(const ImageInput& input, const TensorSpec& tensor);

// Writes pixels, of that size or less, as the input's values; the others are zeros.
void WriteTensor(const Image& pixels, const ImageInput& input, const TensorSpec& tensor, void* memory);

}  // namespace agent
