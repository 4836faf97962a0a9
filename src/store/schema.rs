//! The tables as diesel knows them: what the migrations have made. A test compares the two.

diesel::table! {
    requests (request_id) {
        request_id -> BigInt,
        hash -> BigInt,
        name -> Text,
        user -> Text,
        account -> Nullable<Text>,
        body -> Text,
    }
}

diesel::table! {
    jobs (job_id) {
        job_id -> BigInt,
        array_job_id -> Nullable<BigInt>,
        array_task_id -> Nullable<BigInt>,
        array_tasks -> Nullable<Text>,
        array_limit -> Nullable<BigInt>,
        request_id -> BigInt,
        partition -> Text,
        cpus -> BigInt,
        mem_mb -> BigInt,
        gpus -> BigInt,
        priority -> BigInt,
        hold -> Text,
        state -> Text,
        reason -> Text,
        submit_us -> BigInt,
        eligible_us -> Nullable<BigInt>,
        start_us -> Nullable<BigInt>,
        end_us -> Nullable<BigInt>,
        suspended_at_us -> Nullable<BigInt>,
        suspended_us -> BigInt,
        exit_code -> Text,
        derived_exit_code -> Text,
        restarts -> BigInt,
        next_step -> BigInt,
        alloc -> Nullable<Text>,
        max_rss_kb -> BigInt,
        user_us -> BigInt,
        system_us -> BigInt,
        client -> Nullable<Text>,
        cancelled_by -> Nullable<BigInt>,
        system_comment -> Nullable<Text>,
        task_usage -> Nullable<Text>,
    }
}

diesel::table! {
    steps (job_id, step) {
        job_id -> BigInt,
        step -> Text,
        name -> Text,
        ntasks -> BigInt,
        state -> Text,
        start_us -> BigInt,
        end_us -> Nullable<BigInt>,
        exit_code -> Text,
        alloc -> Text,
        max_rss_kb -> BigInt,
        user_us -> BigInt,
        system_us -> BigInt,
        submit_line -> Text,
        overlap -> Bool,
        client -> Nullable<Text>,
        task_usage -> Nullable<Text>,
        suspended_us -> BigInt,
    }
}

diesel::table! {
    runs (job_id, run) {
        job_id -> BigInt,
        run -> BigInt,
        end_us -> BigInt,
        body -> Text,
    }
}

diesel::table! {
    texts (text_id) {
        text_id -> BigInt,
        hash -> BigInt,
        body -> Binary,
    }
}

diesel::table! {
    launches (job_id) {
        job_id -> BigInt,
        script_id -> BigInt,
        env_id -> Nullable<BigInt>,
    }
}

diesel::joinable!(jobs -> requests (request_id));
diesel::joinable!(steps -> jobs (job_id));
diesel::allow_tables_to_appear_in_same_query!(jobs, requests, steps);
diesel::allow_tables_to_appear_in_same_query!(jobs, launches);
