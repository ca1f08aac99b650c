// Cameras of Video4Linux: webcams, and other devices that the kernel lists as /dev/videoN.
#include <fcntl.h>
#include <linux/videodev2.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <vector>

#include "camera/camera.h"
#include "failure.h"
#include "files.h"
#include "images/codecs.h"
#include "vision/formats.h"
#include "watch.h"

namespace agent {
namespace {

constexpr unsigned kBuffers = 4;
constexpr int kGlance = 50;  // in milliseconds
constexpr std::chrono::seconds kPatience(10);
// So many damaged images one after another are no accident.
constexpr int kMostDamaged = 30;
constexpr int kMostDevices = 64;

// Kinds of images that are known here.
struct Kind {
  uint32_t code;
  bool jpeg;
  PixelFormat format;
};
constexpr Kind kKinds[] = {
    {V4L2_PIX_FMT_YUYV, false, PixelFormat::kYuyv},
    {V4L2_PIX_FMT_NV12, false, PixelFormat::kNv12},
    {V4L2_PIX_FMT_YUV420, false, PixelFormat::kI420},
    {V4L2_PIX_FMT_MJPEG, true, PixelFormat::kI420},
};
// Above so many pixels USB carries few plain images a second.
constexpr int kMostPlain = 640 * 480;

// A request to a driver; what a signal interrupted is asked again.
bool Ask(int device, unsigned long request, void* argument) {
  int result;
  do {
    result = ioctl(device, request, argument);
  } while (result < 0 && errno == EINTR);
  return result == 0;
}

std::vector<uint32_t> Kinds(int device) {
  std::vector<uint32_t> codes;
  v4l2_fmtdesc description{};
  description.type = V4L2_BUF_TYPE_VIDEO_CAPTURE;
  for (; codes.size() < 256 && Ask(device, VIDIOC_ENUM_FMT, &description); ++description.index) {
    codes.push_back(description.pixelformat);
  }
  return codes;
}

// The kind that is asked for: of those that the device gives, the one that suits the wish best; null for none.
const Kind* Choose(const std::vector<uint32_t>& codes, const CameraWish& wish) {
  const bool jpeg = wish.jpeg || wish.width * wish.height > kMostPlain;
  const Kind* chosen = nullptr;
  for (const Kind& kind : kKinds) {
    const bool given = std::find(codes.begin(), codes.end(), kind.code) != codes.end();
    if (given && (chosen == nullptr || (kind.jpeg && jpeg))) chosen = &kind;
  }
  return chosen;
}

// What a device can do, of this one of several that a driver may have.
uint32_t Capabilities(int device) {
  v4l2_capability capability{};
  if (!Ask(device, VIDIOC_QUERYCAP, &capability)) return 0;
  return capability.capabilities & V4L2_CAP_DEVICE_CAPS ? capability.device_caps : capability.capabilities;
}

bool Captures(uint32_t capabilities) {
  return (capabilities & V4L2_CAP_VIDEO_CAPTURE) != 0 && (capabilities & V4L2_CAP_STREAMING) != 0;
}

// Memory of the driver's, in which it leaves images.
struct Buffer {
  std::shared_ptr<void> memory;
  size_t bytes;
};

class Video4Linux : public Camera {
 public:
  Video4Linux(const std::string& device, const CameraWish& wish)
      : Camera(device), device_(open(device.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC)) {
    if (!device_) throw CannotOpen();
    const uint32_t capabilities = Capabilities(device_.get());
    if (!Captures(capabilities)) {
      throw Failure(Code::kInput, "the device " + name() + " gives no images",
                    "try the next number: many cameras have a second device without images");
    }
    const std::vector<uint32_t> codes = Kinds(device_.get());
    const Kind* kind = Choose(codes, wish);
    if (kind == nullptr) {
      throw Fault(
          "gives images of no kind that is known here",
          "it has " + Names(codes) + "; MJPEG, YUYV, NV12 and YU12 are known; a Raspberry Pi's own is --camera rpicam");
    }
    kind_ = *kind;
    SetFormat(wish);
    Map();
    for (unsigned i = 0; i < buffers_.size(); ++i) Give(i);
    int type = V4L2_BUF_TYPE_VIDEO_CAPTURE;
    if (!Ask(device_.get(), VIDIOC_STREAMON, &type)) throw Refused();
  }

  ~Video4Linux() override {
    int type = V4L2_BUF_TYPE_VIDEO_CAPTURE;
    Ask(device_.get(), VIDIOC_STREAMOFF, &type);
  }

  std::optional<Picture> Next() override {
    std::string reason = "damaged images only";
    for (int damaged = 0; damaged < kMostDamaged; ++damaged) {
      const std::optional<v4l2_buffer> taken = Newest();
      if (!taken) return std::nullopt;
      const Buffer& buffer = buffers_[taken->index];
      const size_t used = std::min<size_t>(taken->bytesused, buffer.bytes);
      std::optional<Picture> picture;
      if ((taken->flags & V4L2_BUF_FLAG_ERROR) == 0) {
        try {
          picture = PictureOf(static_cast<const uint8_t*>(buffer.memory.get()), used);
        } catch (const Failure& failure) {
          reason = failure.what();
        }
      }
      Give(taken->index);
      if (picture) return picture;
    }
    throw Fault("gives no image that can be read", reason);
  }

 private:
  Failure CannotOpen() const {
    const int number = errno;
    if (number == ENOENT || number == ENODEV || number == ENXIO) {
      return Failure(Code::kInput, "there is no camera " + name(), "connect one, or name another device");
    }
    if (number == EACCES || number == EPERM) {
      return Fault("may not be used", "sudo usermod -aG video $USER, then log in again");
    }
    return Fault("cannot be opened", SystemError());
  }

  Failure Refused() const {
    if (errno == EBUSY) return Fault("is in use", "end the other program");
    if (errno == ENODEV) return Fault("is gone", "connect it again");
    return Fault("does not do what it should", SystemError());
  }

  static std::string Names(const std::vector<uint32_t>& codes) {
    std::string names;
    for (const uint32_t code : codes) {
      names += names.empty() ? "" : ", ";
      for (int i = 0; i < 4; ++i) {
        const char letter = static_cast<char>(code >> (8 * i) & 0x7F);
        names += letter > ' ' && letter < 0x7F ? letter : '?';
      }
    }
    return names.empty() ? "none" : names;
  }

  void SetFormat(const CameraWish& wish) {
    v4l2_format format{};
    format.type = V4L2_BUF_TYPE_VIDEO_CAPTURE;
    v4l2_pix_format& pixels = format.fmt.pix;
    pixels.width = static_cast<uint32_t>(wish.width);
    pixels.height = static_cast<uint32_t>(wish.height);
    pixels.pixelformat = kind_.code;
    pixels.field = V4L2_FIELD_NONE;
    if (!Ask(device_.get(), VIDIOC_S_FMT, &format)) throw Refused();
    if (pixels.pixelformat != kind_.code || pixels.width == 0 || pixels.height == 0 ||
        pixels.width > kMaximumPixels / pixels.height) {
      throw Fault("does not give the images that it says", "ask for another --size");
    }
    width_ = static_cast<int>(pixels.width);
    height_ = static_cast<int>(pixels.height);
    const size_t least = pixels.width * (kind_.format == PixelFormat::kYuyv ? size_t{2} : size_t{1});
    stride_ = std::max<size_t>(pixels.bytesperline, least);
  }

  void Map() {
    v4l2_requestbuffers request{};
    request.count = kBuffers;
    request.type = V4L2_BUF_TYPE_VIDEO_CAPTURE;
    request.memory = V4L2_MEMORY_MMAP;
    if (!Ask(device_.get(), VIDIOC_REQBUFS, &request)) throw Refused();
    for (unsigned i = 0; i < std::min(request.count, 4 * kBuffers); ++i) {
      v4l2_buffer buffer = Described(i);
      if (!Ask(device_.get(), VIDIOC_QUERYBUF, &buffer)) throw Refused();
      void* memory = mmap(nullptr, buffer.length, PROT_READ | PROT_WRITE, MAP_SHARED, device_.get(),
                          static_cast<off_t>(buffer.m.offset));
      if (memory == MAP_FAILED) throw Refused();
      const auto unmap = [bytes = buffer.length](void* mapped) { munmap(mapped, bytes); };
      buffers_.push_back({std::shared_ptr<void>(memory, unmap), buffer.length});
    }
    if (buffers_.empty()) throw Failure(Code::kInput, "the camera " + name() + " has no memory for images");
  }

  static v4l2_buffer Described(unsigned index) {
    v4l2_buffer buffer{};
    buffer.index = index;
    buffer.type = V4L2_BUF_TYPE_VIDEO_CAPTURE;
    buffer.memory = V4L2_MEMORY_MMAP;
    return buffer;
  }

  void Give(unsigned index) {
    v4l2_buffer buffer = Described(index);
    if (!Ask(device_.get(), VIDIOC_QBUF, &buffer)) throw Refused();
  }

  // The buffer with the newest image; older ones go back to the driver. Nothing if the process is asked to end.
  std::optional<v4l2_buffer> Newest() {
    std::optional<v4l2_buffer> newest;
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!Interrupted()) {
      v4l2_buffer buffer = Described(0);
      if (Ask(device_.get(), VIDIOC_DQBUF, &buffer)) {
        if (newest) Give(newest->index);
        if (buffer.index >= buffers_.size())
          throw Failure(Code::kInput, "the camera " + name() + " names no image of its own");
        newest = buffer;
        continue;
      }
      if (errno != EAGAIN) throw Refused();
      if (newest) return newest;
      if (std::chrono::steady_clock::now() > deadline) throw GivesNothing();
      pollfd ready{device_.get(), POLLIN, 0};
      poll(&ready, 1, kGlance);
    }
    return std::nullopt;
  }

  Picture PictureOf(const uint8_t* data, size_t size) const {
    if (kind_.jpeg) {
      std::string jpeg(reinterpret_cast<const char*>(data), size);
      Image image = DecodeJpeg(jpeg, name());
      return {std::move(image), std::move(jpeg)};
    }
    const CameraFrame frame{data, height_, width_, stride_, kind_.format};
    if (size < FrameBytes(frame)) throw Failure(Code::kInput, "an image that is cut off");
    return {FromFrame(frame), ""};
  }

  Descriptor device_;
  Kind kind_{};
  int width_ = 0;
  int height_ = 0;
  size_t stride_ = 0;
  std::vector<Buffer> buffers_;
};

}  // namespace

std::unique_ptr<Camera> OpenVideo4Linux(const std::string& device, const CameraWish& wish) {
  return std::make_unique<Video4Linux>(device, wish);
}

std::string FindVideo4Linux() {
  for (int number = 0; number < kMostDevices; ++number) {
    const std::string name = "/dev/video" + std::to_string(number);
    const Descriptor device(open(name.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    if (!device) continue;
    const uint32_t capabilities = Capabilities(device.get());
    const bool alone = (capabilities & (V4L2_CAP_IO_MC | V4L2_CAP_VIDEO_OUTPUT)) == 0;
    if (Captures(capabilities) && alone && Choose(Kinds(device.get()), {})) return name;
  }
  return "";
}

}  // namespace agent
