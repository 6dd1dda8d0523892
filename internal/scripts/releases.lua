-- Releases many locks at once, as far as nobody queues for them. Of 32 locks, each takes a server
-- half as long as with release.lua.
--
--     KEYS: key [queue], of each lock   ARGV: value [, window ms], of each lock; how many locks
--
-- It returns an array with 1 for each lock whose key it deleted, and null for each other. Those
-- are left to release.lua.

local call, pcall = redis.call, redis.pcall
local keys = #KEYS / ARGV[#ARGV]
local replies, gone = {}, {}
for i = 1, #KEYS, keys do
	local done = pcall('GET', KEYS[i]) == ARGV[i]
		and (keys == 1 or pcall('PTTL', KEYS[i + 1]) == -2)
	if done then gone[#gone + 1] = KEYS[i] end
	replies[#replies + 1] = done and 1
end
if gone[1] then call('DEL', unpack(gone)) end
return replies
