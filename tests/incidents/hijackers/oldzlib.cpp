// A part of an old zlib, without symbol versions. What is missing here, such as deflateInit2_,
// comes from the system's zlib: two implementations then share one stream, and this one, like
// every zlib, refuses a stream that it did not set up.

struct Stream;  // z_stream

extern "C" {
const int Z_STREAM_ERROR = -2;

const char *zlibVersion() { return "1.2.3"; }
int deflate(Stream *, int) { return Z_STREAM_ERROR; }
int deflateEnd(Stream *) { return Z_STREAM_ERROR; }
int inflate(Stream *, int) { return Z_STREAM_ERROR; }
int inflateEnd(Stream *) { return Z_STREAM_ERROR; }

int api_version() { return 7; }
}
