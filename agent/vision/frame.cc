#include "vision/frame.h"

#include <algorithm>
#include <cmath>

namespace agent {
namespace {

// To the nearest whole number, halves to the even one.
int Rounded(double value) { return static_cast<int>(std::nearbyint(value)); }

}  // namespace

std::optional<Fit> FitOf(const std::string& name) {
  if (name == "stretch") return Fit::kStretch;
  if (name == "pad") return Fit::kPad;
  if (name == "letterbox") return Fit::kLetterbox;
  if (name == "fill" || name == "scaled") return Fit::kFill;
  if (name == "cover") return Fit::kCover;
  if (name == "contain") return Fit::kContain;
  if (name == "line") return Fit::kLine;
  return std::nullopt;
}

Size Frame::Inner() const { return {Rounded(image.height * scale_y), Rounded(image.width * scale_x)}; }

Point Frame::ToImage(Point point) const {
  return {(point.x - static_cast<float>(offset_x)) / static_cast<float>(scale_x),
          (point.y - static_cast<float>(offset_y)) / static_cast<float>(scale_y)};
}

Box Frame::ToImage(const Box& box) const {
  const Point first = ToImage(Point{box.x1, box.y1});
  const Point last = ToImage(Point{box.x2, box.y2});
  return {first.x, first.y, last.x, last.y};
}

// No image is scaled to a longer side than this: what is seen of it is computed alone.
constexpr int kLongest = 1 << 30;

Frame Framed(Size image, Size network, Fit fit) {
  const double height = image.height;
  const double width = image.width;
  const double rows = network.height;
  const double columns = network.width;
  if (fit == Fit::kContain) {  // sizes are not rounded
    const double scale = std::min(rows / height, columns / width);
    return {image, network, scale, scale, (columns - scale * width) / 2, (rows - scale * height) / 2};
  }
  Size inner = network;
  if (fit == Fit::kCover) {  // sizes and the place of the cut are those of torchvision's Resize and CenterCrop
    if (rows * width <= columns * height) {
      inner.height = static_cast<int>(std::min(columns * height / width, double{kLongest}));
    } else {
      inner.width = static_cast<int>(std::min(rows * width / height, double{kLongest}));
    }
  } else if (fit == Fit::kLine) {
    inner.width = static_cast<int>(std::min(columns, std::ceil(rows * (width / height))));
  } else if (fit == Fit::kPad || fit == Fit::kLetterbox) {
    const double least = std::min(rows / height, columns / width);
    const double scale = fit == Fit::kPad ? std::min(1.0, least) : least;
    inner = {std::max(1, Rounded(height * scale)), std::max(1, Rounded(width * scale))};
  }
  Frame frame{image, network, inner.width / width, inner.height / height};
  if (fit == Fit::kLetterbox) {
    frame.offset_x = (network.width - inner.width) / 2;  // the smaller half comes first
    frame.offset_y = (network.height - inner.height) / 2;
  } else if (fit == Fit::kCover) {
    frame.offset_x = -Rounded((inner.width - network.width) / 2.0);
    frame.offset_y = -Rounded((inner.height - network.height) / 2.0);
  }
  return frame;
}

}  // namespace agent
