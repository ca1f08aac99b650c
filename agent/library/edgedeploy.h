/* Runs edgedeploy's networks in your own programs; docs/your-program.md explains how.
 *
 * A call that can fail returns an ed_status; other calls have a return value for failure. ed_error() then gives the
 * reason, in the same thread. No argument ends the program, except a pointer to unmapped memory: using a closed network
 * is an error, too.
 *
 * All calls may be made from any thread. Calls on one network take turns; different networks run at the same time. The
 * memory that a call returns belongs to the network; each call documents how long it is valid.
 */
#ifndef EDGEDEPLOY_H_
#define EDGEDEPLOY_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define ED_API __attribute__((visibility("default")))
#else
#define ED_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* An open network. */
typedef struct ed_network ed_network;

typedef int32_t ed_status;
enum {
  ED_OK = 0,
  ED_FAILED = 1,   /* a failure of no other kind: no memory, an inference that failed */
  ED_MISUSED = 2,  /* a call with arguments that cannot be meant, or at a time when it cannot be made */
  ED_INPUT = 7,    /* an input cannot be used as it is, or more threads are asked for than there are processors */
  ED_PACKAGE = 8,  /* the release is not there, damaged, or not for this machine */
  ED_DEVICE = 21,  /* the OpenCL device that the network is for is not there, or failed */
  ED_INTERNAL = 70 /* an error inside the library */
};

/* Where buffers must begin that inputs are bound to: at a multiple of so many bytes. */
#define ED_ALIGNMENT 64

/* An input or an output. Values lie densely, the last dimension's next to each other, in the machine's byte order. */
typedef struct ed_tensor {
  const char* name;
  const char* dtype;    /* as numpy names it: float32, float16, int8, uint8, int64, bool, ... */
  const char* layout;   /* NCHW or NHWC if the shape is that of images and leaves no doubt, else empty */
  const int64_t* shape; /* `rank` sizes */
  size_t rank;          /* 0 for a scalar */
  size_t bytes;         /* of all values */
} ed_tensor;

/* The version of the library, as 0.2.0. */
ED_API const char* ed_version(void);

/* What the last call that failed in this thread has to say; empty if none did. It is there until the next one fails. */
ED_API const char* ed_error(void);

/* Opens a network.
 *
 * release: a folder with the files of a package or of a release; or, if there is no slash in it, a model's name, whose
 *   release in use is opened: ~/.local/share/edgedeploy/releases/NAME/current.
 * threads: how many threads are to compute; 0 for the number that the package states, or as many as there are
 *   processors if that is less. Networks of one library file share its threads: what is set last holds for all.
 * network: where the network goes; null if it cannot be opened. Its inputs are zeros. */
ED_API ed_status ed_open(const char* release, int32_t threads, ed_network** network);

/* Told of a new release; called by ed_run and ed_detect before the inference, in their thread. It may make any calls of
 * the network but these two; it may not leave by an exception or longjmp.
 *
 * release: the folder of the new release.
 * error: null if the network is that of the new release from now on; else why it stays that of the one before. */
typedef void (*ed_switched)(ed_network* network, const char* release, const char* error, void* context);

/* Opens the release in use of a model, as ed_open, and changes to another one when that comes into use.
 *
 * Each ed_run looks where the link leads. When that is another release, it is loaded in a thread of its own while
 * inferences go on; the first ed_run after that changes to it. Inputs that have the same name, dtype and shape there
 * keep their values, or stay bound; others are zeros.
 *
 * model: a model's name; or, if there is a slash in it, a symbolic link to a folder, as ~/.local/.../NAME/current.
 * switched: called with `context` when there is a new release; may be null. */
ED_API ed_status ed_follow(const char* model, int32_t threads, ed_switched switched, void* context,
                           ed_network** network);

/* Closes a network; one that is null is none. What another thread does with it is finished first. */
ED_API ed_status ed_close(ed_network* network);

/* The folder of the release, without links; null for a network that is not open. It is there until the next ed_run. */
ED_API const char* ed_release(ed_network* network);

/* How many inputs and outputs there are; 0 for a network that is not open. */
ED_API size_t ed_input_count(ed_network* network);
ED_API size_t ed_output_count(ed_network* network);

/* Describes one of them, in the order of the network. What the description points to is there until the next ed_run
 * where releases are followed, else until ed_close. */
ED_API ed_status ed_describe_input(ed_network* network, size_t index, ed_tensor* tensor);
ED_API ed_status ed_describe_output(ed_network* network, size_t index, ed_tensor* tensor);

/* Copies the values of an input, of exactly `bytes` bytes. They stay until they are set again. */
ED_API ed_status ed_set_input(ed_network* network, size_t index, const void* values, size_t bytes);

/* Has every ed_run read an input from the caller's buffer of exactly `bytes` bytes, which begins at a multiple of
 * ED_ALIGNMENT and stays there until the input is bound or set again, or the network is closed. Null ends that: the
 * input is zeros. */
ED_API ed_status ed_bind_input(ed_network* network, size_t index, const void* buffer, size_t bytes);

/* One inference. */
ED_API ed_status ed_run(ed_network* network);

/* Where the values of an output of the last inference lie: there until the next ed_run or ed_set_entry, or ed_close.
 * Null, with ED_MISUSED, before the first. */
ED_API ed_status ed_get_output(ed_network* network, size_t index, const void** values);

/* How many threads compute; 0 for a network that is not open. */
ED_API int32_t ed_threads(ed_network* network);
/* Takes another number of threads, from 1 to the number of processors, when no inference of the library runs. */
ED_API ed_status ed_set_threads(ed_network* network, int32_t threads);

/* A package may have been built for several shapes of its inputs; each is an entry, and the first is in use unless
 * another one is set. Each keeps inputs of its own. */
ED_API size_t ed_entry_count(ed_network* network);
ED_API ed_status ed_set_entry(ed_network* network, size_t entry);

/* How the pixels of an image lie in memory: rows of blue, green and red bytes, of red, green and blue, of grey ones;
 * the three forms of Y, U and V by ITU-R BT.601 that cameras give: planes of Y, U and V; a plane of Y and one of U and
 * V by turns; Y, U, Y and V of two pixels. Planes lie one below the other, and both sides of such images are even. */
typedef int32_t ed_format;
enum { ED_BGR = 0, ED_RGB = 1, ED_GRAY = 2, ED_I420 = 3, ED_NV12 = 4, ED_YUYV = 5 };

typedef struct ed_image {
  const void* pixels;
  int32_t width;
  int32_t height;
  size_t stride; /* bytes from one row to the next; of the planes of U and V in ED_I420 half as many; 0: no gaps */
  ed_format format;
} ed_image;

/* One thing that a network sees in an image: a class of the whole, an object in a box, points of a face or a person,
 * the pixels of a class, a depth for each pixel.
 * Places are in pixels of the image, (0, 0) at its top left. */
typedef struct ed_detection {
  const char* label; /* the class's name, or its number where the package has no names */
  int32_t class_id;
  float score;               /* NaN where the network gives none */
  const float* box;          /* x1, y1, x2, y2; null where there is no place */
  const float* corners;      /* x and y of four corners of a box that may be turned, or null; `box` is around them */
  const float* points;       /* x and y of each of `point_count` points, or null */
  const float* point_scores; /* how sure the network is of each of them, or null */
  const float* depths;       /* how far each of them lies behind the middle of all, in pixels of the image, or null */
  size_t point_count;
  /* Which pixels belong to it, or null: lengths of `mask_count` runs, column after column from the top, of pixels that
   * do not belong to it, that do, and so on by turns. */
  const int64_t* mask;
  size_t mask_count;
  const float* surface; /* a number for each pixel of the image, such as its depth, row by row, or null */
} ed_detection;

/* One inference on an image: what the network sees in it, the best first. The image becomes the network's input, and
 * outputs become results, as the package says that its network is used: as in its demo. ED_INPUT if it does not say
 * that, or in words that this version of the library does not know. A package that was built for a camera takes frames
 * of its size and format as they are, and ED_INPUT comes of all others.
 *
 * found: `count` results; null if there are none. They are there until the next ed_detect or ed_run, or ed_close.
 *   ed_get_output gives the outputs that they are made of. */
ED_API ed_status ed_detect(ed_network* network, const ed_image* image, const ed_detection** found, size_t* count);

#ifdef __cplusplus
}
#endif

#endif /* EDGEDEPLOY_H_ */
