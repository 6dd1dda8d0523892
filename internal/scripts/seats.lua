-- Is sent in front of the scripts of readers, behind hears.lua. The last key is one more, the
-- seats.
--
-- While readers have the key, it holds the marker "~redlock:shared", which is nobody's value: to
-- everybody else the key is taken. The seats tell who they are, a sorted set: the value of each,
-- and when that ends, in milliseconds of the node's clock. "~" and a member of the queue is a seat
-- that is kept for that one for a window. The key never ends before a seat. Without the marker the
-- seats mean nothing: they are those of readers who had the key before somebody else.
--
-- sits tells whether somebody has a seat that has not ended.
--
-- keep lets the key live for as long as the last seat, which ends then if the caller knows. It
-- returns nothing if all have ended.
--
-- admit lets in, beside readers, those who are first in the queue and share: each has a seat for
-- the window, and is told. A member that shares ends with "*". The first of another kind ends that,
-- and is told that it is the next: the last reader's release gives it the key. A member that does
-- not hear is dead, and leaves the queue. The one whose command this is need not hear. A user who
-- may not publish cannot know who hears, and passes nobody over.

local shared, seats = '~redlock:shared', table.remove(KEYS)
local key, queue, clock = KEYS[1], KEYS[#KEYS], call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function sits(who) return tonumber(call('ZSCORE', seats, who) or 0) > now end
local function keep(last)
	last = last or call('ZREVRANGE', seats, 0, 0, 'WITHSCORES')[2]
	if not last or tonumber(last) <= now then return end
	call('PEXPIREAT', key, last)
	call('PEXPIREAT', seats, last)
	return last
end
local function alive(who, text)
	return hears(who, text) or type(pcall('PUBLISH', string.sub(who, 1, 39), '')) ~= 'number'
end
local function admit(window, member)
	local seated
	for _ = 1, 100 do
		local to = pcall('ZRANGE', queue, 0, 0)[1]
		local shares = to and string.sub(to, -1) == '*'
		if not to or not shares and alive(to, string.sub(to, 40) .. '+') then break end
		pcall('ZREM', queue, to)
		if shares and (to == member or alive(to)) then
			call('ZADD', seats, now + window, '~' .. to)
			seated = true
		end
	end
	if seated then keep() end
end
