// Members of std::unordered_set<long> as GCC up to 10 compiled them without optimization. A value
// lies 8 bytes behind the start of its node. Old members get the node, and add the 8; members
// since GCC 11 have the same mangled names, get the place behind the link, and add nothing.
// One of each kind in one container write and read a value at different places.

#include <new>

struct OldNode {
    OldNode *next;
    long value;
};

extern "C" {
long *value_of(OldNode *self) asm("_ZNSt8__detail21_Hash_node_value_baseIlE9_M_valptrEv");
const long *value_of_const(const OldNode *self) asm(
    "_ZNKSt8__detail21_Hash_node_value_baseIlE9_M_valptrEv");
OldNode *allocate_node(void *self, const long &value) asm(
    "_ZNSt8__detail16_Hashtable_allocISaINS_10_Hash_nodeIlLb0EEEEE16_M_allocate_node"
    "IJRKlEEEPS2_DpOT_");

long *value_of(OldNode *self) { return &self->value; }
const long *value_of_const(const OldNode *self) { return &self->value; }
OldNode *allocate_node(void *, const long &value) {
    OldNode *node = new OldNode{nullptr, 0};
    *value_of(node) = value;
    return node;
}

int api_version() { return 7; }
}
