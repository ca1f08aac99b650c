#include "demo/source.h"

#include <cstdio>
#include <utility>

#include "failure.h"
#include "images/exif.h"
#include "images/image_file.h"
#include "images/jpeg.h"
#include "interruption.h"
#include "machine.h"

namespace agent {
namespace {

class Files : public Source {
 public:
  Files(std::vector<std::string> files, bool jpeg) : files_(std::move(files)), jpeg_(jpeg) {}

  const std::string& name() const override { return files_.front(); }

  std::optional<Shot> Next() override {
    while (next_ < files_.size() && !Interrupted()) {
      const std::string& file = files_[next_++];
      try {
        Shot shot = Read(file);
        found_ = true;
        return shot;
      } catch (const Failure& failure) {
        const bool last = next_ == files_.size() && !found_;
        if (last) throw;
        std::fprintf(stderr, "agent: passed over: %s\n", failure.what());
      }
    }
    return std::nullopt;
  }

 private:
  Shot Read(const std::string& file) const {
    const double began_ms = NowMs();
    std::string content = ReadImageFile(file);
    Image pixels = DecodeImage(content, file);
    const double capture_ms = NowMs() - began_ms;
    // One that was turned upright is another image than the file's.
    const bool as_it_is = jpeg_ && IsJpeg(content) && Orientation(content) == 1;
    return {file, {std::move(pixels), as_it_is ? std::move(content) : ""}, capture_ms};
  }

  const std::vector<std::string> files_;
  const bool jpeg_;
  size_t next_ = 0;
  bool found_ = false;
};

class FromCamera : public Source {
 public:
  explicit FromCamera(std::unique_ptr<Camera> camera) : camera_(std::move(camera)) {}

  const std::string& name() const override { return camera_->name(); }

  std::optional<Shot> Next() override {
    const double began_ms = NowMs();
    std::optional<Picture> picture = camera_->Next();
    if (!picture) return std::nullopt;
    return Shot{camera_->name(), std::move(*picture), NowMs() - began_ms};
  }

 private:
  std::unique_ptr<Camera> camera_;
};

}  // namespace

std::unique_ptr<Source> SourceOfFiles(std::vector<std::string> files, bool jpeg) {
  return std::make_unique<Files>(std::move(files), jpeg);
}

std::unique_ptr<Source> SourceOfCamera(std::unique_ptr<Camera> camera) {
  return std::make_unique<FromCamera>(std::move(camera));
}

}  // namespace agent
