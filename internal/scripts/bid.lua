-- Bids for the key: says in advance what a member of the queue will claim. If the member is the
-- first in the queue when the key is released, it has the key at once: see release.lua.
--
--     KEYS: key, bid   ARGV: value, expiry ms, member, number, life ms
--
-- It returns 1. The number is what the member then hears, after the key and a space. There is one
-- bid at a time. A later one replaces it, and one that is not taken up within its life is
-- forgotten. A bid begins with its key, after that key's length: no other key is released to it.

local key, bid = KEYS[1], {ARGV[3], ARGV[4], ARGV[2], ARGV[1]}
redis.call('SET', KEYS[2], #key .. ' ' .. key .. ' ' .. table.concat(bid, ' '), 'PX', ARGV[5])
return 1
