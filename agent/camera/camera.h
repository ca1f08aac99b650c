// Cameras of the board: Video4Linux, the Raspberry Pi's own, and streams from the network.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "failure.h"
#include "vision/image.h"

namespace agent {

struct Picture {
  Image pixels;
  std::string jpeg;  // the same as the camera gave it, if it gave a JPEG
};

// What a camera is asked for. It may give images of another size.
struct CameraWish {
  int width = 640;
  int height = 480;
  bool jpeg = false;  // whether its JPEGs are of use
};

class Camera {
 public:
  explicit Camera(std::string name) : name_(std::move(name)) {}
  virtual ~Camera() = default;
  // The newest image: those that came meanwhile are passed over. Nothing if the process is asked to end.
  // Failure(kInput) if the camera stops giving images.
  virtual std::optional<Picture> Next() = 0;
  // What it is called in messages.
  const std::string& name() const { return name_; }

 protected:
  // Failure(kInput) that says `what` of this camera.
  Failure Fault(const std::string& what, const std::string& why) const {
    return Failure(Code::kInput, "the camera " + name_ + " " + what, why);
  }
  // For an image that did not come in time.
  Failure GivesNothing() const { return Fault("gives no images", "it was waited for in vain"); }

 private:
  const std::string name_;
};

// Opens a camera, and starts it:
//   a number or a device, as 0 or /dev/video0     one of Video4Linux
//   rpicam or rpicam:NUMBER                       one of the Raspberry Pi's own, through rpicam-vid
//   rtsp://..., http://... or https://...         a stream, through ffmpeg
//   nothing                                       the first of Video4Linux that gives images, else rpicam
// Failure(kInput) if there is no such camera, it may not be used, or what it is read with is not there.
std::unique_ptr<Camera> OpenCamera(const std::string& which, const CameraWish& wish);

// A device of Video4Linux. Failure(kInput) also if another program uses it, or it gives no images of a kind that is
// known here: MJPEG, YUYV, NV12 and YU12.
std::unique_ptr<Camera> OpenVideo4Linux(const std::string& device, const CameraWish& wish);
// The first device that delivers such images by itself, or an empty path. Devices that deliver what others made of a
// sensor's raw pixels, as beside a Raspberry Pi's camera, do not count.
std::string FindVideo4Linux();

// One of the Raspberry Pi's own, by its number. Failure(kInput) if rpicam-vid (libcamera-vid, before 2024) is not
// there, or cannot give images of this size without padding their rows.
std::unique_ptr<Camera> OpenRaspberryCamera(int number, const CameraWish& wish);
// Whether there is what OpenRaspberryCamera needs.
bool HasRaspberryCamera();

// A stream. Failure(kInput) if ffmpeg is not there.
std::unique_ptr<Camera> OpenStream(const std::string& address);

}  // namespace agent
