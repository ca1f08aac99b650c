// What all decoders share: a decoder is made from the parameters that a package states, and reads outputs as results.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fields.h"
#include "manifest.h"
#include "vision/candidates.h"
#include "vision/frame.h"
#include "vision/outputs.h"

namespace agent {

using Labels = std::vector<std::string>;

// A class's name, or its number if `labels` does not reach that far.
std::string LabelOf(const Labels& labels, int64_t class_id);

class Decoder {
 public:
  virtual ~Decoder() = default;
  // Failure(kInput) if the outputs are not those of a network of this kind.
  virtual std::vector<Detection> Decode(const Outputs& outputs, const Frame& frame, const Labels& labels) const = 0;
};

// What a decoder becomes for one network.
struct Fitted {
  std::unique_ptr<Decoder> decoder;
  std::optional<Fit> fit{};    // how images are brought to the network's size, if that goes before what is stated
  Labels labels{};             // names of classes that the network says itself
  bool has_own_names = false;  // whether the decoder calls outputs as the network does
};

// What a network says of itself.
struct Described {
  const std::vector<Head>& heads;
  const std::vector<std::pair<std::string, std::string>>& metadata;
  const std::vector<TensorSpec>& outputs;
};

// The decoder that a package states, which has an object with a kind and its parameters. Failure(kInput) if it is not
// known here, or does not suit the network.
Fitted MakeDecoder(const Json& stated, const Described& network);

// The parameters of each kind, as Fields describes them.
Json DecoderSchemas();

// Levels of a network, or shapes of its anchors: with so many at most, nothing that is counted overflows.
constexpr Limits Levels(Limits each = {}) {
  each.items = 1;
  each.most_items = 256;
  return each;
}
inline constexpr Limits kStride{1, 4096};
inline const OneOf kSuppression{"agnostic", "class_aware"};

// Decoders by the names of their kinds; JsonError for parameters that a kind does not have.
using Kinds = std::vector<std::pair<const char*, Fitted (*)(Fields& fields, const Described& network)>>;

// One that needs no more than its parameters.
template <typename Kind>
Fitted Made(Fields& fields, const Described&) {
  return {std::make_unique<Kind>(fields)};
}

// The kinds of each file.
Kinds ClassificationDecoders();
Kinds FaceDecoders();
Kinds KeypointDecoders();
Kinds MapDecoders();
Kinds NanoDetDecoders();
Kinds SsdDecoders();
Kinds TextDecoders();
Kinds UltralyticsDecoders();
Kinds YoloDecoders();

inline float Clipped(float value, float most) { return std::min(std::max(value, 0.0f), most); }

// Base of the decoders whose results are boxes.
class BoxDecoder : public Decoder {
 public:
  std::vector<Detection> Decode(const Outputs& outputs, const Frame& frame, const Labels& labels) const override;

 protected:
  struct Defaults {
    std::optional<float> threshold;  // without it, the package must state one
    double iou_threshold;
    bool clip = true;
  };
  BoxDecoder(Fields& fields, const Defaults& defaults);
  BoxDecoder(float threshold, const Suppression& suppression, size_t candidates)
      : threshold_(threshold), suppression_(suppression), candidates_(candidates) {}

  // All places whose score `Reaches`.
  virtual Candidates Find(const Outputs& outputs, const Frame& frame) const = 0;
  // Of those that overlap, the best one.
  virtual Candidates Reduced(const Candidates& found) const { return Chosen(found, Suppressed(found, suppression_)); }
  // Adds to a result, which has its class and score, where it is; false if there is nothing of it in the image.
  virtual bool Place(const Candidate& found, const Outputs& outputs, const Frame& frame, Detection* result) const;

  bool Reaches(float score) const { return score >= threshold_; }
  const Suppression& suppression() const { return suppression_; }
  // For decoders of several classes, which can be told to suppress within each.
  void ReadSuppression(Fields& fields) { fields.Read("suppression", &suppression_.class_aware, kSuppression); }
  // What classes are called where there are no labels.
  void SetNames(Labels names) { names_ = std::move(names); }

 private:
  Candidates Sound(Candidates found) const;

  float threshold_;
  Suppression suppression_{};
  size_t candidates_ = 5000;  // as in the reference implementations of RetinaFace, EfficientDet and YuNet
  bool clip_ = true;
  Labels names_;
};

// The best of some values and which it is; NaN if one of them is that, as numpy has it.
struct Best {
  float value;
  int64_t index;
};
Best BestOf(const float* values, int64_t count, int64_t step = 1);

// 1 / (1 + exp(-x)), written so that no large x overflows.
float Sigmoid(float x);
double Sigmoid(double x);
// exp(x) for sizes of boxes; it ends where a box is larger than any image.
float Exponential(float x);

// Rows and columns of a level whose convolutions pad: a part of a cell at the right and bottom is one.
Size GridSize(Size network, int64_t stride);
int64_t CellCount(Size network, const std::vector<int64_t>& strides);

// Column and row of each cell of all levels, level after level, row by row, and the level's number.
template <typename Visit>
void EachCell(Size network, const std::vector<int64_t>& strides, const Visit& visit) {
  int64_t place = 0;
  for (size_t level = 0; level < strides.size(); ++level) {
    const Size grid = GridSize(network, strides[level]);
    for (int row = 0; row < grid.height; ++row) {
      for (int column = 0; column < grid.width; ++column) {
        visit(place++, static_cast<float>(column), static_cast<float>(row), level);
      }
    }
  }
}

}  // namespace agent
