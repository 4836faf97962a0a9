//! The diesel schema. A test checks that it matches the migrations.

diesel::table! {
    requests (request_id) {
        request_id -> BigInt,
        hash -> BigInt,
        name -> Text,
        user -> Text,
        account -> Nullable<Text>,
        body -> Text,
        snapshot -> Nullable<Text>,
    }
}

diesel::table! {
    jobs (job_id) {
        job_id -> BigInt,
        request_id -> BigInt,
        body -> Text,
        array_job_id -> Nullable<BigInt>,
        array_task_id -> Nullable<BigInt>,
        partition -> Text,
        state -> Text,
        submit_us -> BigInt,
        end_us -> Nullable<BigInt>,
    }
}

diesel::table! {
    steps (job_id, step) {
        job_id -> BigInt,
        step -> Text,
        body -> Text,
    }
}

diesel::table! {
    runs (job_id, run) {
        job_id -> BigInt,
        run -> BigInt,
        body -> Text,
        end_us -> Nullable<BigInt>,
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

diesel::table! {
    history (id) {
        id -> BigInt,
        last_job_id -> BigInt,
    }
}

diesel::table! {
    memos (topic, number) {
        topic -> Text,
        number -> BigInt,
        body -> Text,
    }
}

diesel::table! {
    crontabs (uid) {
        uid -> BigInt,
        text -> Binary,
        entries -> Text,
    }
}

diesel::table! {
    notices (number) {
        number -> BigInt,
        body -> Text,
    }
}

diesel::table! {
    sources (job_id) {
        job_id -> BigInt,
        taken_us -> BigInt,
        summary_id -> BigInt,
        diff_id -> Nullable<BigInt>,
    }
}

diesel::table! {
    diffs (diff_id) {
        diff_id -> BigInt,
        hash -> BigInt,
        used_us -> BigInt,
        bytes -> BigInt,
        is_plain -> Bool,
        body -> Binary,
    }
}

diesel::joinable!(jobs -> requests (request_id));
diesel::joinable!(steps -> jobs (job_id));
diesel::joinable!(runs -> jobs (job_id));
diesel::allow_tables_to_appear_in_same_query!(jobs, requests, steps);
diesel::allow_tables_to_appear_in_same_query!(runs, jobs);
diesel::allow_tables_to_appear_in_same_query!(jobs, launches);
diesel::allow_tables_to_appear_in_same_query!(launches, texts);
diesel::allow_tables_to_appear_in_same_query!(sources, jobs);
diesel::allow_tables_to_appear_in_same_query!(sources, texts);
diesel::allow_tables_to_appear_in_same_query!(sources, diffs);
