/* What each of EXIF's orientations consists of. */
#ifndef DG_ORIENTATION_H
#define DG_ORIENTATION_H

/* What makes a stored picture upright: it is mirrored left to right, then top to bottom, then its rows become columns. */
typedef struct {
    unsigned char mirrored, flipped_vertically, transposed;
} dg_orientation;

/* By EXIF's number, 1 to 8. 0 is no orientation, and changes nothing, as 1 does. */
static const dg_orientation dg_orientations[9] = {
    [2] = {1, 0, 0}, [3] = {1, 1, 0}, [4] = {0, 1, 0}, [5] = {0, 0, 1}, [6] = {0, 1, 1}, [7] = {1, 1, 1}, [8] = {1, 0, 1},
};

/* The orientation whose upright picture is that of `orientation`, mirrored left to right: 1 and 2, 3 and 4 … are such pairs. */
static inline int dg_orientation_mirrored(int orientation) { return ((orientation - 1) ^ 1) + 1; }

#endif
