/* A camera of Video4Linux for programs that are started with this library before the others (LD_PRELOAD): it answers
   what they ask of $FAKE_CAMERA_DEVICE with the images of the folder $FAKE_CAMERA_IMAGES, called 0, 1, ..., as a driver
   would. $FAKE_CAMERA_FORMATS are the four letters of each of its formats; $FAKE_CAMERA_SIZE is WIDTHxHEIGHT,
   $FAKE_CAMERA_STRIDE the bytes of a row, $FAKE_CAMERA_BURST how many images come at a time, $FAKE_CAMERA_ERROR the
   request and the number of the error that it fails with. What is asked is written into $FAKE_CAMERA_LOG. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/videodev2.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BUFFERS 8
#define LENGTH (1 << 21)

static int device = -1;
static int queued[BUFFERS], first, last; /* a ring of the buffers that the driver has */
static int ready;                        /* how many images have come and were not taken */
static int shown;
static int streams;

static const char *setting(const char *name, const char *otherwise) {
  const char *value = getenv(name);
  return value ? value : otherwise;
}

static void note(const char *name) {
  const char *path = getenv("FAKE_CAMERA_LOG");
  if (!path) return;
  FILE *log = fopen(path, "a");
  fprintf(log, "%s\n", name);
  fclose(log);
}

static int fails(const char *name) {
  char request[32] = "";
  int number = 0;
  note(name);
  if (sscanf(setting("FAKE_CAMERA_ERROR", ""), "%31s %d", request, &number) != 2 || strcmp(request, name) != 0) return 0;
  errno = number;
  return 1;
}

static int open_camera(void) {
  device = memfd_create("camera", 0);
  if (ftruncate(device, (off_t)BUFFERS * LENGTH) != 0) abort();
  return device;
}

#define OPENED(name)                                                              \
  int name(const char *path, int flags, ...) {                                    \
    va_list rest;                                                                 \
    va_start(rest, flags);                                                        \
    int mode = va_arg(rest, int);                                                 \
    va_end(rest);                                                                 \
    if (strcmp(path, setting("FAKE_CAMERA_DEVICE", "/dev/video0")) == 0) {        \
      if (fails("open")) return -1;                                               \
      return open_camera();                                                       \
    }                                                                             \
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name); \
    return real(path, flags, mode);                                               \
  }
OPENED(open)
OPENED(open64)

int poll(struct pollfd *waited, nfds_t count, int timeout) {
  if (count == 1 && waited->fd == device && device >= 0) {
    ready += atoi(setting("FAKE_CAMERA_BURST", "1"));
    waited->revents = POLLIN;
    return 1;
  }
  int (*real)(struct pollfd *, nfds_t, int) = (int (*)(struct pollfd *, nfds_t, int))dlsym(RTLD_NEXT, "poll");
  return real(waited, count, timeout);
}

static int enumerate(struct v4l2_fmtdesc *description) {
  const char *formats = setting("FAKE_CAMERA_FORMATS", "YUYV");
  if (4 * description->index >= strlen(formats)) return EINVAL;
  memcpy(&description->pixelformat, formats + 4 * description->index, 4);
  return 0;
}

static int set_format(struct v4l2_format *format) {
  int width = 0, height = 0;
  sscanf(setting("FAKE_CAMERA_SIZE", "32x24"), "%dx%d", &width, &height);
  format->fmt.pix.width = width;
  format->fmt.pix.height = height;
  format->fmt.pix.bytesperline = atoi(setting("FAKE_CAMERA_STRIDE", "0"));
  return 0;
}

static int take(struct v4l2_buffer *buffer) {
  char path[4096];
  if (!streams) return EINVAL;
  if (ready == 0 || first == last) return EAGAIN;
  snprintf(path, sizeof path, "%s/%d", getenv("FAKE_CAMERA_IMAGES"), shown);
  FILE *image = fopen(path, "rb");
  if (!image) return ENODEV; /* the camera was unplugged */
  char *content = malloc(LENGTH);
  buffer->index = queued[first++ % BUFFERS];
  buffer->bytesused = fread(content, 1, LENGTH, image);
  if (pwrite(device, content, buffer->bytesused, (off_t)buffer->index * LENGTH) < 0) abort();
  free(content);
  fclose(image);
  --ready;
  ++shown;
  return 0;
}

static int answer(unsigned long request, void *argument) {
  switch (request) {
    case VIDIOC_QUERYCAP: {
      struct v4l2_capability *capability = argument;
      capability->capabilities = V4L2_CAP_DEVICE_CAPS | V4L2_CAP_VIDEO_CAPTURE | V4L2_CAP_META_CAPTURE | V4L2_CAP_STREAMING;
      capability->device_caps = strtoul(setting("FAKE_CAMERA_CAPABILITIES", "0x04000001"), NULL, 0);
      return fails("QUERYCAP") ? errno : 0;
    }
    case VIDIOC_ENUM_FMT:
      return fails("ENUM_FMT") ? errno : enumerate(argument);
    case VIDIOC_S_FMT:
      return fails("S_FMT") ? errno : set_format(argument);
    case VIDIOC_REQBUFS:
      return fails("REQBUFS") ? errno : 0;
    case VIDIOC_QUERYBUF: {
      struct v4l2_buffer *buffer = argument;
      buffer->length = LENGTH;
      buffer->m.offset = buffer->index * LENGTH;
      return fails("QUERYBUF") ? errno : 0;
    }
    case VIDIOC_QBUF:
      if (last - first == BUFFERS) return EINVAL;
      queued[last++ % BUFFERS] = ((struct v4l2_buffer *)argument)->index;
      return fails("QBUF") ? errno : 0;
    case VIDIOC_DQBUF:
      return fails("DQBUF") ? errno : take(argument);
    case VIDIOC_STREAMON:
      streams = 1;
      return fails("STREAMON") ? errno : 0;
    case VIDIOC_STREAMOFF:
      streams = 0;
      return fails("STREAMOFF") ? errno : 0;
    default:
      return ENOTTY;
  }
}

int ioctl(int descriptor, unsigned long request, ...) {
  va_list rest;
  va_start(rest, request);
  void *argument = va_arg(rest, void *);
  va_end(rest);
  if (descriptor != device || device < 0) {
    int (*real)(int, unsigned long, ...) = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
    return real(descriptor, request, argument);
  }
  errno = answer(request & 0xFFFFFFFFu, argument);
  return errno ? -1 : 0;
}
