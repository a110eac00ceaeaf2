/* gguf_private.h - what gguf.c and gguf_get.c share; for no other file. */
#ifndef DEJA_ENGINE_MODEL_GGUF_PRIVATE_H
#define DEJA_ENGINE_MODEL_GGUF_PRIVATE_H
#include "engine/model/gguf.h"

struct gguf_pair {
    struct str key;
    enum gguf_type type, element; /* element: of an array */
    size_t n;                     /* elements of an array, else 1 */
    const uint8_t *
        value; /* first byte of the value (string: its length); checked to lie in the file, unaligned */
};

struct gguf {
    const uint8_t *bytes;
    size_t n_bytes;
    bool mapped;             /* ours to unmap */
    struct gguf_pair *pairs; /* [n_pairs] sorted by key */
    size_t n_pairs;
    struct gguf_tensor *tensors; /* [n_tensors] sorted by name */
    size_t n_tensors;
    size_t metadata_end; /* where the tensors' descriptions begin */
};

#endif
